"""Choosing and changing elements by positions."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import torch

from oneflow.engine.core.errors import ArgumentError

Bounds = Sequence[Sequence[int | None]]


def batch_gather(input: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """For each position of the leading dims of ``indices`` the slices of ``input`` that its last dim names."""
    outer = indices.dim() - 1
    if indices.shape[:outer] != input.shape[:outer] or input.dim() <= outer:
        raise ArgumentError(
            f"batch_gather takes indices whose leading dims are those of input; got {tuple(input.shape)} and "
            f"{tuple(indices.shape)}"
        )
    inner = input.shape[outer + 1 :]
    spread = indices.long().reshape(*indices.shape, *[1] * len(inner)).expand(*indices.shape, *inner)
    return torch.gather(input, outer, spread)


def _positions(index: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(index.long().unbind(-1))


def gather_nd(input: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """``input`` at the positions that stand along the last dim of ``index``."""
    return input[_positions(index)]


def scatter_nd(index: torch.Tensor, update: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Zeros of ``shape`` with ``update`` added at the positions along the last dim of ``index``."""
    return update.new_zeros(tuple(shape)).index_put(_positions(index), update, accumulate=True)


def tensor_scatter_nd_update(tensor: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
    """A copy of ``tensor`` with ``updates`` at the positions along the last dim of ``indices``."""
    return tensor.index_put(_positions(indices), updates)


def _checked(what: str, input: torch.Tensor, bounds: Bounds) -> list[tuple[int | None, int | None, int]]:
    if len(bounds) > input.dim() or any(len(one) != 3 for one in bounds):
        raise ArgumentError(f"flow.{what} takes (start, stop, step) for at most {input.dim()} dims, got {bounds!r}")
    return [(start, stop, 1 if step is None else step) for start, stop, step in bounds]


def slice(input: torch.Tensor, slice_tup_list: Bounds) -> torch.Tensor:
    """Python slices (start, stop, step) of the first dims; each part may be None, steps may be negative."""
    for dim, (start, stop, step) in enumerate(_checked("slice", input, slice_tup_list)):
        places = range(input.shape[dim])[builtins.slice(start, stop, step)]
        if step > 0:
            input = input[(builtins.slice(None),) * dim + (builtins.slice(places.start, places.stop, step),)]
        else:
            input = input.index_select(dim, torch.tensor(places, dtype=torch.int64, device=input.device))
    return input


def slice_update(input: torch.Tensor, update: torch.Tensor, slice_tup_list: Bounds) -> torch.Tensor:
    """Writes ``update`` into the slices (start, stop, step > 0) of ``input``, and gives ``input``."""
    bounds = _checked("slice_update", input, slice_tup_list)
    if any(step <= 0 for _, _, step in bounds):
        raise ArgumentError(f"flow.slice_update takes steps greater than 0, got {slice_tup_list!r}")
    input[tuple(builtins.slice(*one) for one in bounds)] = update.to(input.dtype)
    return input


def where(condition: torch.Tensor, x: Any = None, y: Any = None) -> Any:
    """x where ``condition`` is not 0, y elsewhere; without both, the positions of what is not 0."""
    chosen = condition if condition.dtype is torch.bool else condition != 0
    if x is None and y is None:
        return torch.where(chosen)
    return torch.where(chosen, x, y)


def unique(
    input: torch.Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dtype: torch.dtype = torch.int32,
) -> Any:
    """The values that occur, each once; places and counts are in ``dtype``."""
    found = torch.unique(input, sorted, return_inverse, return_counts)
    if isinstance(found, torch.Tensor):
        return found
    return (found[0], *(one.to(dtype) for one in found[1:]))


def in_top_k(targets: torch.Tensor, predictions: torch.Tensor, k: int) -> torch.Tensor:
    """Whether the target class of each row is among its ``k`` greatest predictions; equal predictions count in its
    favour."""
    row = torch.gather(predictions, 1, targets.long().unsqueeze(1))
    return ((predictions > row).sum(1) < k) & row.squeeze(1).isfinite()


def index_add_(
    input: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *, alpha: float = 1
) -> torch.Tensor:
    """Adds ``alpha`` times the slices of ``source`` to those of ``input`` that ``index`` names."""
    return input.index_add_(dim, index, source, alpha=alpha)


def masked_fill_(input: torch.Tensor, mask: torch.Tensor, value: Any) -> torch.Tensor:
    """Writes ``value`` where ``mask`` is true."""
    return input.masked_fill_(mask, value)
