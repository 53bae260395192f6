"""Reading of what users pass, shapes, axes, blobs and dtypes, into the values that op rows take."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oneflow.engine.core.dtype import DType, as_dtype
from oneflow.engine.core.errors import ArgumentError, DTypeError
from oneflow.engine.core.number import as_whole, wholes
from oneflow.engine.ir.blob import Blob, emit
from oneflow.engine.ir.trace import require_trace
from oneflow.engine.ops.row import Op


def apply(op: Op, *blobs: Any, name: str | None, **attributes: Any) -> Blob:
    """Records ``op`` on blobs; anything else in their place is refused."""
    require_trace(f"flow.{op.name}")
    for blob in blobs:
        blob_of(op.name, blob)
    return emit(op, *blobs, name=name, **attributes)


def sequence_of(what: str, value: Any) -> tuple[Any, ...]:
    """``value`` as a tuple; only a list or tuple is one."""
    if not isinstance(value, (list, tuple)):
        raise ArgumentError(f"{what} is a list or tuple, got {value!r}")
    return tuple(value)


def shape_of(what: str, value: Any) -> tuple[int, ...]:
    """A shape: a list or tuple of ints > 0, at least one of them."""
    shape = wholes(sequence_of(what, value))
    if not shape or min(shape) < 1:
        raise ArgumentError(f"{what} holds ints > 0, got {value!r}")
    return shape


def places_of(value: Iterable[Any]) -> tuple[int | None, ...] | None:
    """Whole numbers, each of which may be left open with None; None if anything else is among them."""
    places = tuple((entry, as_whole(entry)) for entry in value)
    fits = all(entry is None or place is not None for entry, place in places)
    return tuple(place for _, place in places) if fits else None


def ints_of(value: Any) -> tuple[Any, ...]:
    """One axis or several, as a tuple."""
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def blobs_of(what: str, value: Any) -> list[Blob]:
    """A list of at least one blob."""
    blobs = list(sequence_of(what, value))
    for blob in blobs:
        blob_of(what, blob)
    if not blobs:
        raise ArgumentError(f"{what} holds at least one blob, got none")
    return blobs


def blob_of(what: str, value: Any) -> Blob:
    if not isinstance(value, Blob):
        raise DTypeError(f"{what} takes blobs, got {type(value).__name__} {value!r}")
    return value


def dtype_of(dtype: Any, what: str) -> DType:
    """The dtype given, or the default of the job that is being traced."""
    return require_trace(f"flow.{what}").settings.default_data_type if dtype is None else as_dtype(dtype)


def slices_of(value: Iterable[Any]) -> tuple[tuple[int | None, int | None, int | None], ...]:
    """Slices as users write them: (start, stop, step) each, any of them None; a shorter tuple leaves out the last
    ones."""
    return tuple(_slice_of(entry) for entry in sequence_of("a list of slices", value))


def _slice_of(entry: Any) -> tuple[int | None, int | None, int | None]:
    parts = places_of(entry) if isinstance(entry, (list, tuple)) else None
    if parts is None or not 1 <= len(parts) <= 3:
        raise ArgumentError(f"a slice is (start, stop, step), each an int or None; got {entry!r}")
    start, stop, step = (*parts, None, None)[:3]
    return start, stop, step
