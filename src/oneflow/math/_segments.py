"""``flow.math``: sums of slices with the same number, and broadcasting to what others have. ``flow`` has them too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oneflow.engine.core.errors import ArgumentError, DTypeError
from oneflow.engine.core.number import as_whole, whole
from oneflow.engine.ir.blob import Blob, emit
from oneflow.engine.ir.trace import require_trace
from oneflow.engine.ops import array as array_rows
from oneflow.engine.ops import scatter as rows


def unsorted_segment_sum(
    data: Blob, segment_ids: Blob, num_segments: int, axis: int = 0, name: str | None = None
) -> Blob:
    """Sums of the slices of ``data`` that have the same id. The shape of ``segment_ids`` is that of ``data`` from
    ``axis`` on."""
    count = whole("num_segments", num_segments, above=0)
    blobs = _blobs("unsorted_segment_sum", data, segment_ids)
    return emit(rows.unsorted_segment_sum, *blobs, num_segments=count, axis=axis, name=name)


def unsorted_segment_sum_like(
    data: Blob, segment_ids: Blob, like: Blob, axis: int = 0, name: str | None = None
) -> Blob:
    """``unsorted_segment_sum`` into as many segments as ``like`` has elements on ``axis``."""
    return unsorted_segment_sum(data, segment_ids, _extent(like, axis), axis, name)


def unsorted_batch_segment_sum(data: Blob, segment_ids: Blob, num_segments: int, name: str | None = None) -> Blob:
    """Sums of equal ids along the last axis of ``segment_ids``, for each position of the axes before it on its own."""
    count = whole("num_segments", num_segments, above=0)
    return emit(
        rows.unsorted_batch_segment_sum,
        *_blobs("unsorted_batch_segment_sum", data, segment_ids),
        num_segments=count,
        name=name,
    )


def broadcast_to_compatible_with(x: Blob, compatible: Sequence[Blob], name: str | None = None) -> Blob:
    """x repeated to the shape that broadcasting gives x and all of ``compatible``."""
    what = "broadcast_to_compatible_with"
    if not isinstance(compatible, (list, tuple)) or not compatible:
        raise ArgumentError(f"{what} takes a list or tuple of at least one blob, got {compatible!r}")
    return emit(array_rows.broadcast_to_compatible_with, *_blobs(what, x), _blobs(what, *compatible), name=name)


def _blobs(what: str, *values: Any) -> list[Blob]:
    require_trace(f"flow.{what}")
    for value in values:
        if not isinstance(value, Blob):
            raise DTypeError(f"{what} takes blobs, got {type(value).__name__} {value!r}")
    return list(values)


def _extent(like: Blob, axis: int) -> int:
    shape = _blobs("unsorted_segment_sum_like", like)[0].shape
    place = as_whole(axis)
    if place is None or not -len(shape) <= place < len(shape):
        raise ArgumentError(
            f"unsorted_segment_sum_like's axis is an int from {-len(shape)} to {len(shape) - 1}, got {axis!r}"
        )
    return shape[place]
