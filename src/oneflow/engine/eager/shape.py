"""Shape, order and dtype of tensors, where OneFlow has a function and torch a method, or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch

from oneflow.engine.core.errors import ArgumentError


def _sizes(given: tuple[Any, ...]) -> tuple[int, ...]:
    """Sizes that were given one by one, or as one sequence."""
    return tuple(given[0]) if len(given) == 1 and isinstance(given[0], (tuple, list)) else given


def expand(input: torch.Tensor, *sizes: Any) -> torch.Tensor:
    """``input`` seen with the dims of size 1 repeated to ``sizes``; -1 leaves a dim as it is."""
    return input.expand(_sizes(sizes))


def repeat(input: torch.Tensor, *sizes: Any) -> torch.Tensor:
    """``input`` laid side by side, ``sizes[i]`` times along dim i."""
    return input.repeat(_sizes(sizes))


def view(input: torch.Tensor, *shape: Any) -> torch.Tensor:
    """The same memory under ``shape``, in which one -1 stands for what is left."""
    return input.view(_sizes(shape))


def contiguous(input: torch.Tensor) -> torch.Tensor:
    """``input`` in row-major memory; itself if it is so already."""
    return input.contiguous()


def cast(input: torch.Tensor, dtype: torch.dtype, pin_memory: bool = False) -> torch.Tensor:
    """``input`` in ``dtype``. Floats become ints by dropping the fraction."""
    made = input.to(dtype)
    return made.pin_memory() if pin_memory else made


def broadcast_like(
    x: torch.Tensor, like_tensor: torch.Tensor, broadcast_axes: Sequence[int] | None = None
) -> torch.Tensor:
    """x repeated to the shape of ``like_tensor``; ``broadcast_axes`` names the axes of ``like_tensor`` that x lacks or
    has with size 1."""
    if broadcast_axes and x.dim() < like_tensor.dim():
        x = _with_axes(x, [axis % like_tensor.dim() for axis in broadcast_axes], like_tensor.dim())
    return x.expand(like_tensor.shape)


def _with_axes(x: torch.Tensor, axes: list[int], rank: int) -> torch.Tensor:
    if len(axes) != rank - x.dim():
        raise ArgumentError(
            f"broadcast_axes names {axes}; x has {x.dim()} dims and the like tensor {rank}, so {rank - x.dim()} axes "
            f"are new"
        )
    for axis in sorted(axes):
        x = x.unsqueeze(axis)
    return x


def meshgrid(*tensors: Any, indexing: Literal["ij", "xy"] = "ij") -> tuple[torch.Tensor, ...]:
    """Coordinates of a grid, one tensor per dim; rows first ("ij") unless ``indexing`` is "xy"."""
    return torch.meshgrid(*tensors, indexing=indexing)
