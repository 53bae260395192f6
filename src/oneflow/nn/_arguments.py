"""What the functions of ``flow.nn`` and ``flow.layers`` take in more than one form, brought into one."""

from __future__ import annotations

from typing import Any

from oneflow.engine.core.errors import ArgumentError, DTypeError
from oneflow.engine.core.number import as_whole, wholes
from oneflow.engine.ir.blob import Blob

Size = int | list[int] | tuple[int, ...]

_FORMATS = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


def channels_last(data_format: Any, dims: int) -> bool:
    """Whether the format of images with ``dims`` spatial dimensions names the channels last."""
    first, last = _FORMATS[dims]
    # a blob here (a bias given by position) must not be compared: that would record an op
    if not isinstance(data_format, str) or data_format not in (first, last):
        raise ArgumentError(f"data_format is {first!r} or {last!r}, got {data_format!r}")
    return data_format == last


def spatial(x: Blob, last: bool) -> tuple[int, ...]:
    """The extents of images, or of filters in the same format."""
    return x.shape[1:-1] if last else x.shape[2:]


def channels(x: Blob, last: bool) -> int:
    return x.shape[-1 if last else 1]


def blob(what: str, value: Any, rank: int | None = None) -> Blob:
    """The blob itself, of the given rank; anything else is refused."""
    if not isinstance(value, Blob):
        raise DTypeError(f"{what} is a blob, got {type(value).__name__} {value!r}")
    if rank is not None and len(value.shape) != rank:
        raise ArgumentError(f"{what} has rank {rank}, got {value!r}")
    return value


def per_dim(what: str, value: Any, dims: int) -> tuple[int, ...]:
    """One int > 0 a spatial dimension, from an int or a list of one or ``dims`` ints."""
    items = wholes(value if isinstance(value, (list, tuple)) else [value])
    if items is None or len(items) not in (1, dims) or min(items) < 1:
        raise ArgumentError(f"{what} is an int > 0 or a list of {dims} of them, got {value!r}")
    return items * dims if len(items) == 1 else items


def axis_in(what: str, axis: Any, rank: int) -> int:
    """The axis counted from the front."""
    found = as_whole(axis)
    if found is None or not -rank <= found < rank:
        raise ArgumentError(f"{what} is an int from {-rank} to {rank - 1}, got {axis!r}")
    return found % rank
