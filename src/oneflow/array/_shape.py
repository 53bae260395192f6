"""Shape, order, type, padding, joining, and the assignment to variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oneflow.array._arguments import apply, blob_of, blobs_of, ints_of, sequence_of
from oneflow.compat.spellings import spelled
from oneflow.engine.core.dtype import as_dtype
from oneflow.engine.core.errors import ArgumentError, UnsupportedError
from oneflow.engine.ir.blob import Blob, emit
from oneflow.engine.ir.trace import require_trace
from oneflow.engine.ops import array as rows
from oneflow.engine.ops import elementwise as elementwise_rows
from oneflow.engine.ops import index
from oneflow.engine.ops import padding as padding_rows
from oneflow.engine.ops import sort as sort_rows
from oneflow.engine.ops.row import Op
from oneflow.nn import _arguments as arguments


def identity(x: Blob, name: str | None = None) -> Blob:
    """The same value under another name."""
    return apply(rows.identity, x, name=name)


def identity_n(inputs: Sequence[Blob], name: str | None = None) -> list[Blob]:
    """``identity`` of every blob of a list."""
    return [identity(x, None if name is None else f"{name}_{i}") for i, x in enumerate(blobs_of("identity_n", inputs))]


def amp_white_identity(x: Blob, name: str | None = None) -> Blob:
    """The same value; in mixed precision an op that runs in half precision."""
    return apply(rows.amp_white_identity, x, name=name)


def cast_to_static_shape(x: Blob, name: str | None = None) -> Blob:
    """The same value. Shapes are static already."""
    return identity(x, name)


def cast(x: Blob, dtype: Any, name: str | None = None) -> Blob:
    """x in ``dtype``, x itself if it has it already. Floats become ints by dropping the fraction."""
    target = as_dtype(dtype)
    return x if blob_of("cast", x).spec.dtype == target else apply(rows.cast, x, dtype=target.torch, name=name)


def reshape(x: Blob, shape: Sequence[int], name: str | None = None) -> Blob:
    """The elements of x, in row-major order, under ``shape``, in which one -1 stands for what is left."""
    return apply(rows.reshape, x, shape=sequence_of("reshape's shape", shape), name=name)


dynamic_reshape = reshape


def reshape_like(x: Blob, like: Blob, name: str | None = None) -> Blob:
    """x under the shape of ``like``."""
    return apply(rows.reshape_like, x, like, name=name)


@spelled("flatten")
def flatten(x: Blob, start_dim: int = 0, end_dim: int = -1, name: str | None = None) -> Blob:
    """The axes from ``start_dim`` to ``end_dim`` made into one."""
    return apply(rows.flatten, x, start_dim=start_dim, end_dim=end_dim, name=name)


@spelled("expand_dims")
def expand_dims(x: Blob, axis: int, name: str | None = None) -> Blob:
    """x with a new axis of size 1 at position ``axis`` of the result."""
    return apply(rows.expand_dims, x, axis=axis, name=name)


@spelled("squeeze")
def squeeze(x: Blob, axis: int | Sequence[int] | None = None, name: str | None = None) -> Blob:
    """x without the named axes, which have size 1; without all such axes if none is named."""
    return apply(rows.squeeze, x, axis=None if axis is None else ints_of(axis), name=name)


@spelled("transpose")
def transpose(
    a: Blob,
    perm: Sequence[int] | None = None,
    conjugate: bool = False,
    batch_axis_non_change: bool = False,
    name: str | None = None,
) -> Blob:
    """``a`` with its axes in the order ``perm``; in reverse order if none is given. ``batch_axis_non_change`` changes
    nothing."""
    if conjugate:
        raise UnsupportedError("transpose with conjugate=True: there are no complex blobs")
    order = (
        tuple(reversed(range(len(blob_of("transpose", a).shape))))
        if perm is None
        else sequence_of("transpose's perm", perm)
    )
    return apply(rows.transpose, a, perm=order, name=name)


@spelled("reverse")
def reverse(x: Blob, axis: int | Sequence[int], name: str | None = None) -> Blob:
    """x with the elements along the named axes in reverse order."""
    return apply(rows.reverse, x, axis=ints_of(axis), name=name)


def concat(
    inputs: Sequence[Blob] | None = None,
    axis: int = 0,
    max_dim_size: int | None = None,
    name: str | None = None,
    values: Sequence[Blob] | None = None,
) -> Blob:
    """Blobs joined along ``axis``; a single one is given back as it is.

    ``values`` is another name of ``inputs``. ``max_dim_size`` is what the joined axis may have at most,
    as the blobs come at each step.
    """
    if (inputs is None) == (values is None):
        raise ArgumentError("concat takes either inputs or values, which mean the same")
    blobs = blobs_of("concat", inputs if values is None else values)
    if len(blobs) == 1:
        return blobs[0]
    if max_dim_size is not None and any(blob.is_dynamic for blob in blobs):
        return emit(rows.concat, blobs, axis=axis, max_dim_size=max_dim_size, name=name)
    out = emit(rows.concat, blobs, axis=axis, name=name)
    if max_dim_size is not None and out.shape[axis] > max_dim_size:
        raise ArgumentError(f"concat gives {out.shape[axis]} elements on axis {axis}, max_dim_size is {max_dim_size}")
    return out


def stack(inputs: Sequence[Blob], axis: int = 0, name: str | None = None) -> Blob:
    """Blobs of one shape joined along a new axis."""
    return emit(rows.stack, blobs_of("stack", inputs), axis=axis, name=name)


def pad(x: Blob, paddings: Sequence[Sequence[int]], constant_value: float = 0, name: str | None = None) -> Blob:
    """x surrounded by ``constant_value``; ``paddings`` holds (before, after) for every axis, the batch axis
    included."""
    pairs = tuple(_pair(entry) for entry in sequence_of("pad's paddings", paddings))
    return apply(rows.pad, x, paddings=pairs, constant_value=constant_value, name=name)


def pad_grad(x: Blob, paddings: Sequence[Sequence[int]], constant_value: float = 0, name: str | None = None) -> Blob:
    """The gradient of ``pad`` by its input, given that by its result: x without what ``pad`` has put around it."""
    pairs = [_pair(entry) for entry in sequence_of("pad_grad's paddings", paddings)]
    sizes = blob_of("pad_grad", x).shape
    bounds = tuple((before, size - after, 1) for (before, after), size in zip(pairs, sizes))
    if len(pairs) != len(sizes) or any(
        before < 0 or after < 0 or before >= stop for (before, after), (_, stop, _) in zip(pairs, bounds)
    ):
        raise ArgumentError(
            f"pad_grad takes (before, after) for every axis of what pad has made, got {paddings!r} for {x!r}"
        )
    return emit(index.slice_v2, x, bounds=bounds, name=name)


def _pair(entry: Any) -> tuple[int, int]:
    pair = sequence_of("an entry of paddings", entry)
    if len(pair) != 2:
        raise ArgumentError(f"an entry of paddings is (before, after), got {entry!r}")
    return pair[0], pair[1]


def same_padding(
    x: Blob,
    padding: str,
    data_format: str,
    kernel_size: int | Sequence[int],
    strides: int | Sequence[int],
    dilation_rate: int | Sequence[int] = 1,
    name: str | None = None,
) -> Blob:
    """x with the zeros around its spatial axes that a SAME convolution of these sizes adds.

    ``padding`` is "SAME_LOWER" (also "SAME": the larger half stands before) or "SAME_UPPER" (after).
    """
    where = padding.upper() if isinstance(padding, str) else padding
    if where not in ("SAME", "SAME_LOWER", "SAME_UPPER"):
        raise ArgumentError(f"same_padding's padding is 'SAME_LOWER' or 'SAME_UPPER', got {padding!r}")
    rank = len(blob_of("same_padding", x).shape)
    if rank not in (3, 4, 5):
        raise ArgumentError(f"same_padding takes blobs of rank 3, 4 or 5, got {x!r}")
    last = arguments.channels_last(data_format, rank - 2)
    sizes = arguments.spatial(x, last)
    window = arguments.per_dim("kernel_size", kernel_size, len(sizes))
    steps = arguments.per_dim("strides", strides, len(sizes))
    spread = arguments.per_dim("dilation_rate", dilation_rate, len(sizes))
    kernels = [padding_rows.extent(k, d) for k, d in zip(window, spread)]
    around = padding_rows.explicit(where, sizes, kernels, steps, last)
    whole = [(0, 0), *around, (0, 0)] if last else [(0, 0), (0, 0), *around]
    return pad(x, whole, name=name)


def broadcast_like(x: Blob, like: Blob, broadcast_axes: Sequence[int] | None = None, name: str | None = None) -> Blob:
    """x repeated to the shape of ``like``; ``broadcast_axes`` names the axes of ``like`` that x lacks or has with size
    1."""
    axes = None if broadcast_axes is None else ints_of(broadcast_axes)
    return apply(rows.broadcast_like, x, like, broadcast_axes=axes, name=name)


def expand(x: Blob, expand_size: Sequence[int], name: str | None = None) -> Blob:
    """x repeated to ``expand_size``, in which -1 keeps what x has; new axes come in front."""
    return apply(rows.expand, x, size=sequence_of("expand's expand_size", expand_size), name=name)


@spelled("diag")
def diag(x: Blob, diagonal: int = 0, name: str | None = None) -> Blob:
    """The matrix that has a vector on the given diagonal (0 is the main one, positive ones lie above), or that diagonal
    of a matrix."""
    return apply(rows.diag, x, diagonal=diagonal, name=name)


@spelled("sort")
def sort(x: Blob, axis: int = -1, direction: str = "ASCENDING", name: str | None = None) -> Blob:
    """x in order along ``axis``; ``direction`` is "ASCENDING" or "DESCENDING"."""
    return _ordered(sort_rows.sort, x, axis, direction, name)


@spelled("argsort")
def argsort(x: Blob, axis: int = -1, direction: str = "ASCENDING", name: str | None = None) -> Blob:
    """The positions, int32, that would put x in order along ``axis``; equal elements keep their order."""
    return _ordered(sort_rows.argsort, x, axis, direction, name)


def _ordered(op: Op, x: Blob, axis: int, direction: str, name: str | None) -> Blob:
    if direction not in ("ASCENDING", "DESCENDING"):
        raise ArgumentError(f"{op.name}'s direction is 'ASCENDING' or 'DESCENDING', got {direction!r}")
    return apply(op, x, axis=axis, descending=direction == "DESCENDING", name=name)


def count_not_finite(x: Blob, name: str | None = None) -> Blob:
    """How many elements of x are infinite or not a number: int64, shape (1,)."""
    return apply(rows.count_not_finite, x, name=name)


def multi_count_not_finite(x: Sequence[Blob] | None = None, name: str | None = None) -> Blob:
    """How many elements of all blobs of a list are infinite or not a number: int64, shape (1,)."""
    counts = [count_not_finite(blob) for blob in blobs_of("multi_count_not_finite", x)]
    return counts[0] if len(counts) == 1 else emit(elementwise_rows.add_n, counts, name=name)


@spelled("assign")
def assign(ref: Blob, value: Blob, dtype: Any = None, name: str | None = None) -> Blob:
    """Writes ``value``, as ``dtype`` if one is given, into the variable ``ref`` at the end of the step, and gives it.

    All of the step reads what was there before.
    """
    trace = require_trace("flow.assign")
    if not any(blob_of("assign", ref).node is node for node in trace.graph.variables.values()):
        raise ArgumentError(f"assign writes into a variable, got {ref!r}; make one with flow.get_variable")
    return apply(rows.assign, ref, value if dtype is None else cast(value, dtype), name=name)
