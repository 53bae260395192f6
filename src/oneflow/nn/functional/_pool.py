"""``flow.nn.functional``: pools and resampling whose parameters are not torch's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.nn import functional

from oneflow.engine.core.errors import ArgumentError
from oneflow.nn.functional._names import also

Size = int | Sequence[int]


def _max_pool(dims: int, pool: Callable[..., Any], doc: str) -> Callable[..., Any]:
    """``pool`` of torch over ``dims`` spatial dimensions, with OneFlow's order of parameters."""

    def max_pool(
        x: Tensor,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        dilation: Size = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
        data_format: str = "channels_first",
    ) -> Any:
        if data_format not in ("channels_first", "channels_last"):
            raise ArgumentError(
                f"max_pool{dims}d: data_format is 'channels_first' or 'channels_last', got {data_format!r}"
            )
        window = (kernel_size, stride, padding, dilation, ceil_mode)
        if data_format == "channels_first":
            return pool(x, *window, return_indices=return_indices)
        found = pool(x.movedim(-1, -1 - dims), *window, return_indices=return_indices)
        return tuple(part.movedim(-1 - dims, -1) for part in found) if return_indices else found.movedim(-1 - dims, -1)

    max_pool.__name__ = max_pool.__qualname__ = f"max_pool{dims}d"
    max_pool.__doc__ = doc
    return also(input="x")(max_pool)


max_pool1d = _max_pool(
    1,
    functional.max_pool1d,
    "The largest element of each window of (N, C, W); ``max_pool2d`` with one spatial dimension.",
)
max_pool2d = _max_pool(
    2,
    functional.max_pool2d,
    """The largest element of each window, and with ``return_indices`` its place in the plane as well.

    ``data_format`` is "channels_first" (N, C, H, W) or "channels_last" (N, H, W, C), for the result too.
    """,
)
max_pool3d = _max_pool(
    3,
    functional.max_pool3d,
    "The largest element of each window of (N, C, D, H, W); ``max_pool2d`` with three spatial dimensions.",
)


def upsample(
    input: Tensor,
    size: Size | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """``interpolate`` by its older name; torch's says that it is going, this one stays."""
    return functional.interpolate(input, size, scale_factor, mode, align_corners)


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool = False) -> Tensor:
    """The places that ``grid_sample`` takes for an affine transformation; ``align_corners`` is False unless said, where
    torch warns."""
    return functional.affine_grid(theta, list(size), align_corners)


def grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool = False
) -> Tensor:
    """``input`` at the places of ``grid``; ``align_corners`` is False unless said, where torch warns."""
    return functional.grid_sample(input, grid, mode, padding_mode, align_corners)
