"""The OFRecord message: its fields as a table, and the bytes they make (proto2 wire format).

    OFRecord  1 feature      map<string, Feature>, that is repeated {1 key, 2 value}
    Feature   1 bytes_list   2 float_list   3 double_list   4 int32_list   5 int64_list      one of them
    *List     1 value        repeated; numbers are written packed and read packed or not

Encoding and decoding do not know each other; they share only the tables below.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from oneflow.core.errors import DataError

Bytes = bytes | bytearray | memoryview

KINDS = {1: "bytes_list", 2: "float_list", 3: "double_list", 4: "int32_list", 5: "int64_list"}
FIELDS = {kind: number for number, kind in KINDS.items()}
DTYPES: dict[str, np.dtype[Any]] = {
    "float_list": np.dtype("<f4"),
    "double_list": np.dtype("<f8"),
    "int32_list": np.dtype("<i4"),
    "int64_list": np.dtype("<i8"),
}

_VARINT, _FIXED64, _LEN, _GROUP, _END_GROUP, _FIXED32 = range(6)
_FLOAT_WIRE = {"float_list": _FIXED32, "double_list": _FIXED64}
_FEATURE = _KEY = _LIST_VALUE = 1
_VALUE = 2


@dataclass(frozen=True, eq=False)
class FeatureValue:
    """One decoded feature: a name of ``KINDS`` (None: no list was set) and its values.

    ``values`` is a list of bytes for ``bytes_list``, otherwise a one-dimensional array of the kind's dtype.
    """

    kind: str | None
    values: Any


# ------------------------------------------------------------------ encoding


def encode_record(features: Mapping[str, FeatureValue]) -> bytes:
    """The serialized OFRecord of these features, in their order."""
    return b"".join(_block(_FEATURE, _entry(key, feature)) for key, feature in features.items())


def encode_feature(feature: FeatureValue) -> bytes:
    """The serialized Feature."""
    if feature.kind is None:
        return b""
    return _block(FIELDS[feature.kind], encode_list(feature.kind, feature.values))


def encode_list(kind: str, values: Any) -> bytes:
    """The serialized list message of a kind."""
    if kind == "bytes_list":
        return b"".join(_block(_LIST_VALUE, bytes(value)) for value in values)
    if len(values) == 0:
        return b""
    return _block(_LIST_VALUE, _packed(kind, values))


def _entry(key: str, feature: FeatureValue) -> bytes:
    return _block(_KEY, key.encode()) + _block(_VALUE, encode_feature(feature))


def _packed(kind: str, values: Any) -> bytes:
    array = np.asarray(values, DTYPES[kind])
    if kind in _FLOAT_WIRE:
        return array.tobytes()
    return b"".join(_varint(value) for value in array.tolist())


def _block(field: int, body: bytes) -> bytes:
    return _varint(field << 3 | _LEN) + _varint(len(body)) + body


def _varint(value: int) -> bytes:
    value &= 0xFFFF_FFFF_FFFF_FFFF  # a negative number, also an int32, is written as 64 bits
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# ------------------------------------------------------------------ decoding


def decode_record(message: Bytes) -> dict[str, FeatureValue]:
    """The features of a serialized OFRecord. Unknown fields are skipped; of two entries with one key the last counts.

    A message that is cut or malformed is a ``DataError`` that names the byte.
    """
    features: dict[str, FeatureValue] = {}
    view = memoryview(message)
    for field, wire, start, end in _fields(view, 0, len(view)):
        if field == _FEATURE and wire == _LEN:
            key, feature = _decode_entry(view, start, end)
            features[key] = feature
    return features


def decode_feature(message: Bytes) -> FeatureValue:
    """A serialized Feature."""
    view = memoryview(message)
    return _decode_feature(view, 0, len(view), FeatureValue(None, []))


def decode_list(kind: str, message: Bytes) -> Any:
    """The values of a serialized list message of a kind."""
    view = memoryview(message)
    return _decode_list(kind, view, 0, len(view))


def _decode_entry(view: memoryview, start: int, end: int) -> tuple[str, FeatureValue]:
    key, feature = "", FeatureValue(None, [])
    for field, wire, begin, stop in _fields(view, start, end):
        if field == _KEY and wire == _LEN:
            key = _text(view, begin, stop)
        elif field == _VALUE and wire == _LEN:
            feature = _decode_feature(view, begin, stop, feature)
    return key, feature


def _decode_feature(view: memoryview, start: int, end: int, before: FeatureValue) -> FeatureValue:
    feature = before
    for field, wire, begin, stop in _fields(view, start, end):
        if field in KINDS and wire == _LEN:
            feature = _merge(feature, KINDS[field], _decode_list(KINDS[field], view, begin, stop))
    return feature


def _merge(before: FeatureValue, kind: str, values: Any) -> FeatureValue:
    """A list sent twice is one list; a list of another kind replaces the one before."""
    if before.kind != kind:
        return FeatureValue(kind, values)
    return FeatureValue(kind, before.values + values if kind == "bytes_list" else np.concatenate([before.values, values]))


def _decode_list(kind: str, view: memoryview, start: int, end: int) -> Any:
    fields = [(wire, begin, stop) for field, wire, begin, stop in _fields(view, start, end) if field == _LIST_VALUE]
    if kind == "bytes_list":
        return [bytes(view[begin:stop]) for wire, begin, stop in fields if wire == _LEN]
    numbers = _floats if kind in _FLOAT_WIRE else _integers
    chunks = [numbers(kind, view, wire, begin, stop) for wire, begin, stop in fields]
    return chunks[0] if len(chunks) == 1 else np.concatenate([np.empty(0, DTYPES[kind]), *chunks])


def _floats(kind: str, view: memoryview, wire: int, start: int, stop: int) -> np.ndarray:
    dtype = DTYPES[kind]
    if wire not in (_LEN, _FLOAT_WIRE[kind]):
        return np.empty(0, dtype)
    if (stop - start) % dtype.itemsize:
        raise DataError(f"byte {start}: a packed {kind} of {stop - start} bytes is no multiple of {dtype.itemsize}")
    return np.frombuffer(view[start:stop], dtype)


def _integers(kind: str, view: memoryview, wire: int, start: int, stop: int) -> np.ndarray:
    if wire not in (_LEN, _VARINT):
        return np.empty(0, DTYPES[kind])
    raw = np.frombuffer(view[start:stop], np.uint8)
    if raw.size and int(raw.max()) < 0x80:  # every varint is one byte, as in labels and small ids
        return raw.astype(DTYPES[kind])
    return np.array(list(_varints(view, start, stop)), np.uint64).astype("<i8").astype(DTYPES[kind])


def _varints(view: memoryview, start: int, stop: int) -> Iterator[int]:
    while start < stop:
        value, start = _read_varint(view, start, stop)
        yield value


def _text(view: memoryview, start: int, stop: int) -> str:
    try:
        return str(view[start:stop], "utf-8")
    except UnicodeDecodeError:
        raise DataError(f"byte {start}: a feature's name is not UTF-8") from None


def _fields(view: memoryview, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """(field, wire type, first byte, end) of the value of each field of a message, groups left out."""
    while start < end:
        tag, begin = _read_varint(view, start, end)
        field, wire = tag >> 3, tag & 7
        if field == 0:
            raise DataError(f"byte {start}: field number 0")
        if wire == _GROUP:
            start = _skip_group(view, begin, end, field)
            continue
        begin, stop = _extent(view, start, begin, end, wire)
        yield field, wire, begin, stop
        start = stop


def _extent(view: memoryview, tag_at: int, begin: int, end: int, wire: int) -> tuple[int, int]:
    """First byte and end of a field's value."""
    if wire == _VARINT:
        return begin, _read_varint(view, begin, end)[1]
    if wire == _LEN:
        size, begin = _read_varint(view, begin, end)
    elif wire in (_FIXED64, _FIXED32):
        size = 8 if wire == _FIXED64 else 4
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
        tag, begin = _read_varint(view, at, end)
        wire = tag & 7
        if wire == _GROUP:
            open_groups.append(tag >> 3)
            at = begin
        elif wire == _END_GROUP:
            if open_groups.pop() != tag >> 3:
                raise DataError(f"byte {at}: the end of group {tag >> 3}, which is not open here")
            at = begin
        else:
            at = _extent(view, at, begin, end, wire)[1]
    return at


def _read_varint(view: memoryview, start: int, end: int) -> tuple[int, int]:
    value = shift = 0
    for at in range(start, min(end, start + 10)):
        byte = view[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at + 1
        shift += 7
    raise DataError(f"byte {start}: a number that is cut off" if end - start < 10 else f"byte {start}: a number of more than 10 bytes")


