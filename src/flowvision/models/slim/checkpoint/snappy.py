"""Snappy's raw format, unpacked: the length, then literals and copies of what was unpacked before."""

from __future__ import annotations

from oneflow.engine.core.errors import DataError
from oneflow.engine.core.record.wire import read_varint


def unpacked(packed: memoryview) -> bytes:
    """The bytes that were packed; a stream that contradicts itself is a DataError."""
    length, at = read_varint(packed, 0, len(packed))
    if length > 64 * max(len(packed), 1):  # no element gives more than 64 bytes for each of its own three
        raise DataError(f"snappy says {length} bytes come out of {len(packed)}")
    out = bytearray()
    while at < len(packed):
        kind = packed[at] & 3
        if kind == 0:
            size, at = _literal_size(packed, at)
            if at + size > len(packed):
                raise DataError(f"a snappy literal of {size} bytes at byte {at} is cut off")
            out += packed[at : at + size]
            at += size
        else:
            size, distance, at = _copy(packed, at, kind)
            _repeat(out, size, distance)
    if len(out) != length:
        raise DataError(f"snappy says {length} bytes and has {len(out)}")
    return bytes(out)


def _literal_size(packed: memoryview, at: int) -> tuple[int, int]:
    size = packed[at] >> 2
    if size < 60:
        return size + 1, at + 1
    more = size - 59
    return int.from_bytes(_bytes(packed, at + 1, more), "little") + 1, at + 1 + more


def _copy(packed: memoryview, at: int, kind: int) -> tuple[int, int, int]:
    """Length, distance back, and the byte behind."""
    tag = packed[at]
    if kind == 1:
        return (tag >> 2 & 7) + 4, (tag >> 5) << 8 | _bytes(packed, at + 1, 1)[0], at + 2
    width = 2 if kind == 2 else 4
    return (tag >> 2) + 1, int.from_bytes(_bytes(packed, at + 1, width), "little"), at + 1 + width


def _bytes(packed: memoryview, at: int, count: int) -> memoryview:
    if at + count > len(packed):
        raise DataError(f"a snappy element at byte {at} is cut off")
    return packed[at : at + count]


def _repeat(out: bytearray, size: int, distance: int) -> None:
    if not 0 < distance <= len(out):
        raise DataError(f"a snappy copy reaches {distance} bytes back, and there are {len(out)}")
    start = len(out) - distance
    if distance >= size:
        out += out[start : start + size]
        return
    pattern = bytes(out[start:])  # a copy may run into what it writes
    out += (pattern * (size // distance + 1))[:size]
