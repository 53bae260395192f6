"""The protobuf wire format: numbers, tags, lengths. What the fields mean is said in ``messages.py``.

Writing (``block``, ``varint``) and reading (``fields``, ``read_varint``) share the names of the wire types and nothing
else.
"""

from __future__ import annotations

from collections.abc import Iterator

from oneflow.engine.core.errors import DataError

VARINT, FIXED64, LEN, GROUP, END_GROUP, FIXED32 = range(6)

_64_BITS = 0xFFFF_FFFF_FFFF_FFFF


# ------------------------------------------------------------------ writing


def block(field: int, body: bytes) -> bytes:
    """A field of bytes: tag, length, body."""
    return varint(field << 3 | LEN) + varint(len(body)) + body


def varint(value: int) -> bytes:
    value &= _64_BITS  # a negative number, also an int32, is written as 64 bits
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# ------------------------------------------------------------------ reading


def fields(view: memoryview, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """(field, wire type, first byte, end) of the value of each field of a message, groups left out."""
    while start < end:
        tag, begin = read_varint(view, start, end)
        field, wire = tag >> 3, tag & 7
        if field == 0:
            raise DataError(f"byte {start}: field number 0")
        if wire == GROUP:
            start = _skip_group(view, begin, end, field)
            continue
        begin, stop = _extent(view, start, begin, end, wire)
        yield field, wire, begin, stop
        start = stop


def read_varint(view: memoryview, start: int, end: int) -> tuple[int, int]:
    """The number at ``start`` and the byte behind it."""
    value = shift = 0
    for at in range(start, min(end, start + 10)):
        byte = view[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _64_BITS, at + 1
        shift += 7
    raise DataError(
        f"byte {start}: a number that is cut off"
        if end - start < 10
        else f"byte {start}: a number of more than 10 bytes"
    )


def varints(view: memoryview, start: int, stop: int) -> Iterator[int]:
    while start < stop:
        value, start = read_varint(view, start, stop)
        yield value


def _extent(view: memoryview, tag_at: int, begin: int, end: int, wire: int) -> tuple[int, int]:
    """First byte and end of a field's value."""
    if wire == VARINT:
        return begin, read_varint(view, begin, end)[1]
    if wire == LEN:
        size, begin = read_varint(view, begin, end)
    elif wire in (FIXED64, FIXED32):
        size = 8 if wire == FIXED64 else 4
    else:
        raise DataError(f"byte {tag_at}: wire type {wire} does not fit here")
    if size > end - begin:
        raise DataError(f"byte {tag_at}: a field of {size} bytes where {end - begin} are left")
    return begin, begin + size


def _skip_group(view: memoryview, start: int, end: int, field: int) -> int:
    """The byte behind the end of an (unknown) group; groups may nest."""
    open_groups = [field]
    at = start
    while open_groups:
        tag, begin = read_varint(view, at, end)
        wire = tag & 7
        if wire == GROUP:
            open_groups.append(tag >> 3)
            at = begin
        elif wire == END_GROUP:
            if open_groups.pop() != tag >> 3:
                raise DataError(f"byte {at}: the end of group {tag >> 3}, which is not open here")
            at = begin
        else:
            at = _extent(view, at, begin, end, wire)[1]
    return at
