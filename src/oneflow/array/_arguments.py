"""Reading of what users pass, shapes, axes, blobs and dtypes, into the values that op rows take."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oneflow.core.dtype import DType, as_dtype
from oneflow.core.errors import ArgumentError, DTypeError, user_line
from oneflow.ir.blob import Blob, emit
from oneflow.ir.trace import require_trace
from oneflow.ops.row import Op


def apply(op: Op, *blobs: Any, name: str | None, **attributes: Any) -> Blob:
    """Records ``op`` on blobs; anything else in their place is refused."""
    require_trace(f"flow.{op.name}")
    for blob in blobs:
        blob_of(op.name, blob)
    return emit(op, *blobs, name=name, **attributes)


def sequence_of(what: str, value: Any) -> tuple[Any, ...]:
    """``value`` as a tuple; only a list or tuple is one."""
    if not isinstance(value, (list, tuple)):
        raise ArgumentError(f"{user_line()}: {what} is a list or tuple, got {value!r}")
    return tuple(value)


def shape_of(what: str, value: Any) -> tuple[int, ...]:
    """A shape: a list or tuple of ints > 0, at least one of them."""
    shape = sequence_of(what, value)
    if not shape or not all(type(n) is int and n > 0 for n in shape):
        raise ArgumentError(f"{user_line()}: {what} holds ints > 0, got {value!r}")
    return shape


def ints_of(value: Any) -> tuple[Any, ...]:
    """One axis or several, as a tuple."""
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def blobs_of(what: str, value: Any) -> list[Blob]:
    """A list of at least one blob."""
    blobs = list(sequence_of(what, value))
    for blob in blobs:
        blob_of(what, blob)
    if not blobs:
        raise ArgumentError(f"{user_line()}: {what} holds at least one blob, got none")
    return blobs


def blob_of(what: str, value: Any) -> Blob:
    if not isinstance(value, Blob):
        raise DTypeError(f"{user_line()}: {what} takes blobs, got {type(value).__name__} {value!r}")
    return value


def dtype_of(dtype: Any, what: str) -> DType:
    """The dtype given, or the default of the job that is being traced."""
    return require_trace(f"flow.{what}").settings.default_data_type if dtype is None else as_dtype(dtype)


def slices_of(value: Iterable[Any]) -> tuple[tuple[int | None, int | None, int | None], ...]:
    """Slices as users write them: (start, stop, step) each, any of them None; a shorter tuple leaves out the last ones."""
    return tuple(_slice_of(entry) for entry in sequence_of("a list of slices", value))


def _slice_of(entry: Any) -> tuple[int | None, int | None, int | None]:
    parts = list(entry) if isinstance(entry, (list, tuple)) else None
    if parts is None or not 1 <= len(parts) <= 3 or not all(p is None or type(p) is int for p in parts):
        raise ArgumentError(f"{user_line()}: a slice is (start, stop, step), each an int or None; got {entry!r}")
    start, stop, step = parts if len(parts) == 3 else parts + [None] * (3 - len(parts))
    return start, stop, step
