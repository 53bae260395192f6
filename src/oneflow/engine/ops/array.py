"""Shape, order, joining and choice: ops that move values without computing on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from oneflow.engine.core.dtype import from_torch
from oneflow.engine.core.errors import DTypeError
from oneflow.engine.ops.elementwise import number_like, operands
from oneflow.engine.ops.row import Family, require

ROWS = Family()


def axis_of(axis: Any, rank: int) -> int:
    """``axis`` counted from 0; negative ones count from the end."""
    fits = type(axis) is int and -rank <= axis < rank
    require(fits, f"an axis of a blob of rank {rank} is an int from {-rank} to {rank - 1}, got {axis!r}")
    return axis % rank


def axes_of(axes: Sequence[Any], rank: int) -> tuple[int, ...]:
    """Axes counted from 0, each named once."""
    found = tuple(axis_of(axis, rank) for axis in axes)
    require(len(set(found)) == len(found), f"an axis is named twice in {tuple(axes)}")
    return found


def same_dtype(inputs: Sequence[Tensor]) -> None:
    names = [from_torch(x.dtype).name for x in inputs]
    if len(set(names)) > 1:
        raise DTypeError(f"inputs have dtypes {', '.join(names)}; cast them to one, nothing is promoted silently")


def as_condition(mask: Tensor) -> Tensor:
    """A bool tensor of a mask blob, which is of an integer dtype."""
    if mask.dtype.is_floating_point:
        raise DTypeError(
            f"a condition is an integer blob such as a comparison gives, got {from_torch(mask.dtype).name}"
        )
    return mask != 0


def _same(x: Tensor) -> Tensor:
    return x.view_as(x)


identity = ROWS.add("identity", _same, precision="clear")
amp_white_identity = ROWS.add("amp_white_identity", _same, precision="white")
cast = ROWS.add("cast", lambda x, dtype: x.to(dtype))


@ROWS.op("reshape", precision="clear")
def reshape(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The elements in row-major order under another shape, in which one -1 stands for what is left."""
    fixed = [n for n in shape if n != -1]
    require(all(type(n) is int and n > 0 for n in fixed), f"a shape's dims are ints > 0 or one -1, got {shape}")
    require(len(shape) - len(fixed) <= 1, f"a shape has at most one -1, got {shape}")
    fits = x.numel() % math.prod(fixed) == 0 if len(fixed) < len(shape) else x.numel() == math.prod(fixed)
    require(fits, f"{x.numel()} elements cannot take the shape {shape}")
    return x.reshape(shape)


@ROWS.op("reshape_like", precision="clear")
def reshape_like(x: Tensor, like: Tensor) -> Tensor:
    require(x.numel() == like.numel(), f"{x.numel()} elements cannot take the shape {tuple(like.shape)}")
    return x.reshape(like.shape)


@ROWS.op("flatten", precision="clear")
def flatten(x: Tensor, start_dim: int, end_dim: int) -> Tensor:
    start, end = axis_of(start_dim, x.dim()), axis_of(end_dim, x.dim())
    require(start <= end, f"flatten goes from start_dim up to end_dim, got {start_dim} and {end_dim}")
    return x.reshape(*x.shape[:start], math.prod(x.shape[start : end + 1]), *x.shape[end + 1 :])


@ROWS.op("expand_dims", precision="clear")
def expand_dims(x: Tensor, axis: int) -> Tensor:
    return x.unsqueeze(axis_of(axis, x.dim() + 1))


@ROWS.op("squeeze", precision="clear")
def squeeze(x: Tensor, axis: tuple[int, ...] | None) -> Tensor:
    """Without the named axes, all of size 1; without all axes of size 1 where none is named."""
    if axis is None:
        dropped = tuple(i for i, n in enumerate(x.shape) if n == 1)
    else:
        dropped = axes_of(axis, x.dim())
        for i in dropped:
            require(x.shape[i] == 1, f"axis {i} has size {x.shape[i]}, only axes of size 1 can be squeezed")
    return x.reshape([n for i, n in enumerate(x.shape) if i not in dropped])


@ROWS.op("transpose", precision="clear")
def transpose(x: Tensor, perm: tuple[int, ...]) -> Tensor:
    order = axes_of(perm, x.dim())
    require(len(order) == x.dim(), f"perm names each of the {x.dim()} axes once, got {perm}")
    return x.permute(order)


@ROWS.op("reverse", precision="clear")
def reverse(x: Tensor, axis: tuple[int, ...]) -> Tensor:
    return torch.flip(x, axes_of(axis, x.dim()))


@ROWS.op("concat", precision="clear")
def concat(inputs: list[Tensor], axis: int, max_dim_size: int | None = None) -> Tensor:
    """``max_dim_size`` bounds what comes together; while a job is traced, inputs that may be smaller have their largest
    shape."""
    same_dtype(inputs)
    first = inputs[0]
    axis = axis_of(axis, first.dim())
    for x in inputs[1:]:
        fits = x.dim() == first.dim() and all(
            n == m for i, (n, m) in enumerate(zip(x.shape, first.shape, strict=True)) if i != axis
        )
        require(fits, f"concat joins blobs whose shapes differ on axis {axis} only")
    joined = torch.cat(inputs, axis)
    size = joined.shape[axis]
    if max_dim_size is None or size <= max_dim_size:
        return joined
    require(first.is_meta, f"concat gives {size} elements on axis {axis}, max_dim_size is {max_dim_size}")
    return joined.narrow(axis, 0, max_dim_size)


@ROWS.op("stack", precision="clear")
def stack(inputs: list[Tensor], axis: int) -> Tensor:
    same_dtype(inputs)
    require(all(x.shape == inputs[0].shape for x in inputs), "stack joins blobs of one shape")
    return torch.stack(inputs, axis_of(axis, inputs[0].dim() + 1))


@ROWS.op("pad", precision="clear")
def pad(x: Tensor, paddings: tuple[tuple[int, int], ...], constant_value: float) -> Tensor:
    """``paddings`` holds (before, after) for every axis."""
    require(
        len(paddings) == x.dim(),
        f"paddings has one (before, after) for each of the {x.dim()} axes, got {len(paddings)}",
    )
    flat = [n for pair in reversed(paddings) for n in pair]
    require(all(type(n) is int and n >= 0 for n in flat), f"paddings are ints of 0 or more, got {paddings}")
    return F.pad(x, flat, value=number_like(constant_value, x.dtype))


@ROWS.op("reflection_pad2d", precision="clear")
def reflection_pad2d(x: Tensor, padding: tuple[int, int, int, int]) -> Tensor:
    """``padding`` is (left, right, top, bottom) of a blob (N, C, H, W)."""
    require(x.dim() == 4, "reflection_pad2d takes a blob of rank 4, (N, C, H, W)")
    left, right, top, bottom = padding
    require(all(type(n) is int and n >= 0 for n in padding), f"padding is of ints of 0 or more, got {padding}")
    fits = max(left, right) < x.shape[3] and max(top, bottom) < x.shape[2]
    require(fits, f"a reflection is smaller than what it reflects, got (left, right, top, bottom) = {padding}")
    return F.pad(x, padding, mode="reflect")


@ROWS.op("replication_pad2d", precision="clear")
def replication_pad2d(x: Tensor, padding: tuple[int, int, int, int]) -> Tensor:
    """``padding`` is (left, right, top, bottom) of a blob (N, C, H, W); the border goes on."""
    require(x.dim() == 4, "replication_pad2d takes a blob of rank 4, (N, C, H, W)")
    require(all(type(n) is int and n >= 0 for n in padding), f"padding is of ints of 0 or more, got {padding}")
    left, right, top, bottom = padding
    rows = torch.arange(-top, x.shape[2] + bottom, device=x.device).clamp(0, x.shape[2] - 1)
    columns = torch.arange(-left, x.shape[3] + right, device=x.device).clamp(0, x.shape[3] - 1)
    return x.index_select(2, rows).index_select(3, columns)


@ROWS.op("expand", precision="clear")
def expand(x: Tensor, size: tuple[int, ...]) -> Tensor:
    """x repeated to ``size``, in which -1 keeps what x has."""
    require(len(size) >= x.dim(), f"a blob of rank {x.dim()} is expanded to as many axes or more, got {size}")
    new = len(size) - x.dim()
    target = tuple(x.shape[i - new] if n == -1 and i >= new else n for i, n in enumerate(size))
    require(
        all(type(n) is int and n > 0 for n in target),
        f"sizes are ints above 0, or -1 for an axis that x has; got {size}",
    )
    _require_stretch(x, target)
    return x.expand(target)


@ROWS.op("diag")
def diag(x: Tensor, diagonal: int) -> Tensor:
    """The matrix that has the vector x on a diagonal, or a diagonal of the matrix x; positive ones lie above the main
    one."""
    require(
        x.dim() in (1, 2) and type(diagonal) is int,
        f"diag takes a vector or a matrix and an int, got rank {x.dim()} and {diagonal!r}",
    )
    down, right = max(-diagonal, 0), max(diagonal, 0)
    if x.dim() == 1:
        size = x.shape[0] + abs(diagonal)
        on = _diagonal(size, size, diagonal, x)
        column = F.pad(x, (down, right)).unsqueeze(1)
        return torch.where(on, column, torch.zeros_like(column))
    length = min(x.shape[0] - down, x.shape[1] - right)
    require(length > 0, f"a matrix of {tuple(x.shape)} has no diagonal {diagonal}")
    on = _diagonal(x.shape[0], x.shape[1], diagonal, x)
    return torch.where(on, x, torch.zeros_like(x)).sum(1, dtype=x.dtype).narrow(0, down, length)


def _diagonal(rows: int, columns: int, number: int, like: Tensor) -> Tensor:
    return torch.arange(rows, device=like.device).unsqueeze(1) + number == torch.arange(columns, device=like.device)


@ROWS.op("where")
def where(condition: Tensor, x: Any, y: Any) -> Tensor:
    return torch.where(as_condition(condition), *operands(x, y))


@ROWS.op("masked_fill")
def masked_fill(x: Tensor, mask: Tensor, value: float) -> Tensor:
    """``value`` where the mask is not 0, x elsewhere; either is stretched to the shape of the other."""
    try:
        shape = torch.broadcast_shapes(x.shape, mask.shape)
    except RuntimeError:
        require(
            False,
            f"x of shape {tuple(x.shape)} and the mask of shape {tuple(mask.shape)} cannot be broadcast to one shape",
        )
    return torch.masked_fill(x.expand(shape), as_condition(mask), number_like(value, x.dtype))


def _require_stretch(x: Tensor, shape: tuple[int, ...]) -> None:
    """Refuses what numpy's broadcasting would not bring to exactly ``shape``."""
    tail = shape[len(shape) - x.dim() :] if x.dim() else ()
    fits = x.dim() <= len(shape) and all(n in (1, m) for n, m in zip(x.shape, tail, strict=True))
    require(fits, f"the shape {tuple(x.shape)} cannot be broadcast to {shape}")


@ROWS.op("broadcast_like", precision="clear")
def broadcast_like(x: Tensor, like: Tensor, broadcast_axes: tuple[int, ...] | None) -> Tensor:
    """x repeated to like's shape. ``broadcast_axes`` names the axes of ``like`` that x lacks or has with size 1."""
    if broadcast_axes is not None:
        x = _with_axes(x, like, axes_of(broadcast_axes, like.dim()))
    _require_stretch(x, tuple(like.shape))
    return x.expand(like.shape)


def _with_axes(x: Tensor, like: Tensor, axes: tuple[int, ...]) -> Tensor:
    kept = [n for i, n in enumerate(like.shape) if i not in axes]
    sizes = [1 if i in axes else n for i, n in enumerate(like.shape)]
    fits = list(x.shape) in (kept, sizes) or (not kept and x.numel() == 1)
    require(fits, f"with broadcast_axes {axes} x has the shape {tuple(kept)} or {tuple(sizes)}, got {tuple(x.shape)}")
    return x.reshape(sizes)


@ROWS.op("broadcast_to_compatible_with", precision="clear")
def broadcast_to_compatible_with(x: Tensor, compatible: list[Tensor]) -> Tensor:
    """x repeated to the shape that numpy's broadcasting gives x and the others."""
    return x.expand(torch.broadcast_shapes(x.shape, *(other.shape for other in compatible)))


@ROWS.op("count_not_finite")
def count_not_finite(x: Tensor) -> Tensor:
    """How many elements are infinite or not a number: int64, shape (1,)."""
    return torch.logical_not(torch.isfinite(x)).sum().reshape(1)


@ROWS.op("assign")
def assign(ref: Tensor, value: Tensor) -> Tensor:
    """What the variable ``ref`` holds from the end of the step on; the compiler adds the write itself."""
    same_dtype([ref, value])
    require(ref.shape == value.shape, "assign takes a value of the variable's shape")
    return value.detach()
