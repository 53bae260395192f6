"""Parts of a tensor: by bounds, by index tensors, by position as a vector."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from oneflow.engine.core.dtype import from_torch
from oneflow.engine.core.errors import DTypeError
from oneflow.engine.ops.array import axis_of, same_dtype
from oneflow.engine.ops.elementwise import number_like
from oneflow.engine.ops.row import Family, require

ROWS = Family()

Bounds = tuple[int | None, int | None, int | None]


class Cut(NamedTuple):
    """One axis's elements start, start + step ... below stop; ``flipped`` when they are taken from the last to the
    first."""

    dim: int
    start: int
    stop: int
    step: int
    flipped: bool


def as_index(indices: Tensor) -> Tensor:
    """An index blob in the dtype torch indexes with."""
    if indices.dtype.is_floating_point:
        raise DTypeError(f"indices are an integer blob, got {from_torch(indices.dtype).name}; cast them")
    return indices.to(torch.int64)


@ROWS.op("slice", precision="clear")
def slice_(x: Tensor, begin: tuple[int | None, ...], size: tuple[int | None, ...]) -> Tensor:
    """``size[i]`` elements of axis i from ``begin[i]`` on; None begins at 0, None or -1 goes to the end."""
    require(
        len(begin) == len(size) == x.dim(),
        f"begin and size have one entry for each of the {x.dim()} axes, got {begin} and {size}",
    )
    for dim, (first, wanted) in enumerate(zip(begin, size, strict=True)):
        extent = x.shape[dim]
        start = 0 if first is None else first + extent if first < 0 else first
        count = extent - start if wanted is None or wanted == -1 else wanted
        fits = start >= 0 and (count > 0 or not extent) and start + count <= extent
        require(fits, f"begin {first} and size {wanted} do not lie inside axis {dim}, which has {extent} elements")
        x = x.narrow(dim, start, count)
    return x


def _cuts(shape: torch.Size, bounds: tuple[Bounds, ...]) -> list[Cut]:
    """What Python slices take of each axis; axes without bounds are whole."""
    require(len(bounds) <= len(shape), f"there are {len(bounds)} slices for {len(shape)} axes")
    return [_cut(dim, shape[dim], bound) for dim, bound in enumerate(bounds)]


def _cut(dim: int, extent: int, bound: Bounds) -> Cut:
    require(bound[2] != 0, f"the step of axis {dim} is 0")
    taken = range(extent)[slice(*bound)]
    if not extent:  # of a dynamic input that is empty in this step
        return Cut(dim, 0, 0, 1, False)
    require(len(taken) > 0, f"the slice {bound} takes nothing of axis {dim}, which has {extent} elements")
    low, high = sorted((taken[0], taken[-1]))
    return Cut(dim, low, high + 1, abs(taken.step), taken.step < 0)


def _take(x: Tensor, cut: Cut) -> Tensor:
    index = (slice(None),) * cut.dim + (slice(cut.start, cut.stop, cut.step),)
    return x[index]


def _flips(cuts: list[Cut]) -> list[int]:
    return [cut.dim for cut in cuts if cut.flipped]


@ROWS.op("slice_v2", precision="clear")
def slice_v2(x: Tensor, bounds: tuple[Bounds, ...]) -> Tensor:
    """``bounds`` holds a Python slice (start, stop, step) for each of the first axes."""
    cuts = _cuts(x.shape, bounds)
    for cut in cuts:
        x = _take(x, cut)
    return torch.flip(x, _flips(cuts)) if _flips(cuts) else x


@ROWS.op("slice_update", precision="clear")
def slice_update(x: Tensor, update: Tensor, bounds: tuple[Bounds, ...]) -> Tensor:
    """x with the elements that slice_v2 would take replaced by ``update``."""
    same_dtype([x, update])
    cuts = _cuts(x.shape, bounds)
    return _put(x, torch.flip(update, _flips(cuts)) if _flips(cuts) else update, cuts)


def _put(x: Tensor, update: Tensor, cuts: list[Cut]) -> Tensor:
    if not cuts:
        require(
            x.shape == update.shape, f"the slices take the shape {tuple(x.shape)}, the update has {tuple(update.shape)}"
        )
        return update
    cut, *others = cuts
    return torch.slice_scatter(x, _put(_take(x, cut), update, others), cut.dim, cut.start, cut.stop, cut.step)


@ROWS.op("gather", precision="clear")
def gather(params: Tensor, indices: Tensor, axis: int, batch_dims: int) -> Tensor:
    """The slices of ``params`` along ``axis`` that ``indices`` name, for each position of the first ``batch_dims`` axes
    on its own."""
    axis = axis_of(axis, params.dim())
    if batch_dims == 0:
        picked = params.index_select(axis, as_index(indices).reshape(-1))
        return picked.reshape(*params.shape[:axis], *indices.shape, *params.shape[axis + 1 :])
    fits = 0 < batch_dims <= indices.dim() and axis == batch_dims and params.shape[:axis] == indices.shape[:batch_dims]
    require(
        fits,
        f"gather with batch_dims {batch_dims} takes axis {batch_dims} and indices that begin with params' first axes",
    )
    batch, rest = math.prod(params.shape[:axis]), math.prod(params.shape[axis + 1 :])
    chosen = as_index(indices).reshape(batch, -1, 1).expand(-1, -1, rest)
    picked = params.reshape(batch, params.shape[axis], rest).gather(1, chosen)
    return picked.reshape(*indices.shape, *params.shape[axis + 1 :])


def positions(indices: Tensor, rank: int) -> tuple[Tensor, ...]:
    """The columns of an index blob whose last axis holds positions in the first axes of a tensor of ``rank``."""
    require(
        1 <= indices.shape[-1] <= rank, f"the last axis of indices has 1 to {rank} elements, one for each axis indexed"
    )
    return as_index(indices).unbind(-1)


@ROWS.op("gather_nd", precision="clear")
def gather_nd(params: Tensor, indices: Tensor) -> Tensor:
    """``params[indices[i, :]]`` for every i: shape ``indices.shape[:-1] + params.shape[indices.shape[-1]:]``."""
    return params[positions(indices, params.dim())]


@ROWS.op("dim_gather", precision="clear")
def dim_gather(x: Tensor, index: Tensor, dim: int) -> Tensor:
    """``out[i][j] = x[index[i][j]][j]`` for dim 0, and so on; shape that of ``index``."""
    dim = axis_of(dim, x.dim())
    fits = index.dim() == x.dim() and all(
        n <= m for i, (n, m) in enumerate(zip(index.shape, x.shape, strict=True)) if i != dim
    )
    require(fits, f"an index has x's rank and is nowhere longer than x but on axis {dim}")
    return torch.gather(x, dim, as_index(index))


@ROWS.op("one_hot")
def one_hot(indices: Tensor, depth: int, on_value: float, off_value: float, axis: int, dtype: torch.dtype) -> Tensor:
    """``on_value`` where the position along the new axis is the index, ``off_value`` elsewhere and for indices outside
    it."""
    axis = axis_of(axis, indices.dim() + 1)
    steps = torch.arange(depth, device=indices.device).reshape([-1] + [1] * (indices.dim() - axis))
    hit = as_index(indices).unsqueeze(axis) == steps
    on, off = (torch.full_like(hit, number_like(value, dtype), dtype=dtype) for value in (on_value, off_value))
    return torch.where(hit, on, off)
