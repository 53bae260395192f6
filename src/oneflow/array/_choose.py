"""Parts of blobs and what is put into them: slices, indices, masks, segments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oneflow.array._arguments import apply, blob_of, dtype_of, places_of, sequence_of, shape_of, slices_of
from oneflow.array._dynamic import argwhere
from oneflow.array._shape import assign, cast
from oneflow.compat.spellings import spelled
from oneflow.engine.core.errors import ArgumentError, UnsupportedError
from oneflow.engine.core.number import whole
from oneflow.engine.ir.blob import Blob, emit, emit_many
from oneflow.engine.ops import array as array_rows
from oneflow.engine.ops import dynamic as dynamic_rows
from oneflow.engine.ops import index as rows
from oneflow.engine.ops import scatter as scatter_rows


def slice(x: Blob, begin: Sequence[int | None], size: Sequence[int | None], name: str | None = None) -> Blob:
    """``size[i]`` elements of axis i from ``begin[i]`` on; begin None is 0, size None or -1 goes to the end."""
    return apply(rows.slice_, x, begin=_places("begin", begin), size=_places("size", size), name=name)


def _places(what: str, value: Any) -> tuple[int | None, ...]:
    places = places_of(sequence_of(f"slice's {what}", value))
    if places is None:
        raise ArgumentError(f"slice's {what} holds ints or None, got {value!r}")
    return places


def slice_v2(x: Blob, slice_tup_list: Sequence[Sequence[int | None]], name: str | None = None) -> Blob:
    """Python slices (start, stop, step) of the first axes; each part may be None, steps may be negative."""
    return apply(rows.slice_v2, x, bounds=slices_of(slice_tup_list), name=name)


def slice_update(
    x: Blob, update: Blob, slice_tup_list: Sequence[Sequence[int | None]], name: str | None = None
) -> Blob:
    """x with ``update`` in the place of ``slice_v2(x, slice_tup_list)``."""
    return apply(rows.slice_update, x, update, bounds=slices_of(slice_tup_list), name=name)


def gather(
    params: Blob,
    indices: Blob,
    validate_indices: None = None,
    axis: int | None = None,
    batch_dims: int = 0,
    name: str | None = None,
) -> Blob:
    """The slices of ``params`` along ``axis`` (``batch_dims`` if not given) that ``indices`` name.

    With ``batch_dims`` the first axes of both count the same things, each of which has its own indices; ``axis`` is
    then ``batch_dims``. Where all axes of ``indices`` but the last are the first ones of ``params`` they are the ones
    that count, whatever number ``batch_dims`` gives. An index outside the axis ends the run with an error.
    """
    if validate_indices:
        raise UnsupportedError("gather has no validate_indices: an index outside the axis is an error always")
    outer = whole("gather's batch_dims", batch_dims, 0)
    along = outer if axis is None else axis
    if outer and along == outer:
        shared = len(blob_of("gather", indices).shape) - 1
        if shared and blob_of("gather", params).shape[:shared] == indices.shape[:shared]:
            along = outer = shared
    return apply(rows.gather, params, indices, axis=along, batch_dims=outer, name=name)


def gather_nd(params: Blob, indices: Blob, name: str | None = None) -> Blob:
    """``params`` at the positions that stand along the last axis of ``indices``."""
    return apply(rows.gather_nd, params, indices, name=name)


@spelled("dim_gather")
def dim_gather(x: Blob, dim: int, index: Blob, name: str | None = None) -> Blob:
    """For each element of ``index`` the element of x at that position along ``dim``, on the other axes at its own
    place."""
    return apply(rows.dim_gather, x, index, dim=dim, name=name)


def one_hot(
    indices: Blob,
    depth: int,
    on_value: float = 1,
    off_value: float = 0,
    axis: int = -1,
    dtype: Any = None,
    name: str | None = None,
) -> Blob:
    """A new axis of ``depth``, ``on_value`` at the place the index names and ``off_value`` elsewhere.

    ``dtype`` defaults to the job's default data type. An index outside 0 .. depth - 1 gives ``off_value`` everywhere.
    """
    size, out = whole("one_hot's depth", depth, above=0), dtype_of(dtype, "one_hot").torch
    return apply(
        rows.one_hot, indices, depth=size, on_value=on_value, off_value=off_value, axis=axis, dtype=out, name=name
    )


def where(
    condition: Blob, x: Blob | float | None = None, y: Blob | float | None = None, name: str | None = None
) -> Blob:
    """x where ``condition`` is not 0, y elsewhere; all three are broadcast. One of x and y may be a Python number.
    Without them it is ``argwhere``."""
    if x is None and y is None:
        return argwhere(condition, name=name)
    if x is None or y is None:
        raise ArgumentError("where takes both x and y, or neither: then it gives where the condition is not 0")
    return emit(array_rows.where, blob_of("where", condition), x, y, name=name)


def masked_fill(x: Blob, mask: Blob, value: float, name: str | None = None) -> Blob:
    """``value`` where ``mask``, an integer blob, is not 0, x elsewhere; x and the mask are broadcast to one shape."""
    return apply(array_rows.masked_fill, x, mask, value=value, name=name)


def scatter_nd(indices: Blob, updates: Blob, shape: Sequence[int], name: str | None = None) -> Blob:
    """Zeros of ``shape`` with ``updates`` added at the positions along the last axis of ``indices``."""
    return apply(scatter_rows.scatter_nd, indices, updates, shape=shape_of("scatter_nd's shape", shape), name=name)


def tensor_scatter_nd_update(params: Blob, indices: Blob, updates: Blob, name: str | None = None) -> Blob:
    """``params`` with ``updates`` at the positions along the last axis of ``indices``, which should differ from each
    other."""
    return apply(scatter_rows.tensor_scatter_nd_update, params, indices, updates, name=name)


def tensor_scatter_nd_add(params: Blob, indices: Blob, updates: Blob, name: str | None = None) -> Blob:
    """``params`` with ``updates`` added at the positions along the last axis of ``indices``."""
    return apply(scatter_rows.tensor_scatter_nd_add, params, indices, updates, name=name)


def categorical_ordinal_encode(
    table: Blob, size: Blob, input_tensor: Blob, hash_precomputed: bool = True, name: str | None = None
) -> Blob:
    """Each value of ``input_tensor`` as a number: 0 stays 0, the others get 1, 2 ... in the order in which they first
    appear.

    ``table``, a variable of shape (2 x capacity,) in the dtype of the input, and ``size``, one of shape (1,), keep what
    was seen; more values than the capacity end the run. Values are keys as they are, so ``hash_precomputed`` changes
    nothing.
    """
    encoded, known, count = emit_many(dynamic_rows.categorical_ordinal_encode, table, input_tensor, name=name)
    assign(table, known)
    assign(size, cast(count, size.dtype))
    return encoded
