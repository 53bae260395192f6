"""The messages in record files: their fields as a table, and the bytes they make.

    OFRecord  1 feature      map<string, Feature>, that is repeated {1 key, 2 value}
    Feature   1 bytes_list   2 float_list   3 double_list   4 int32_list   5 int64_list      one of them

    Example   1 features     Features, which is {1 feature  map<string, Feature>}
    Feature   1 bytes_list   2 float_list   3 int64_list                                     one of them

    *List     1 value        repeated; numbers are written packed and read packed or not

Encoding and decoding do not know each other; they share only the tables below.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from oneflow.engine.core.errors import DataError
from oneflow.engine.core.record.wire import FIXED32, FIXED64, LEN, VARINT, block, fields, read_varint, varint, varints

Bytes = bytes | bytearray | memoryview

KINDS = {1: "bytes_list", 2: "float_list", 3: "double_list", 4: "int32_list", 5: "int64_list"}
EXAMPLE_KINDS = {1: "bytes_list", 2: "float_list", 3: "int64_list"}
DTYPES: dict[str, np.dtype[Any]] = {
    "float_list": np.dtype("<f4"),
    "double_list": np.dtype("<f8"),
    "int32_list": np.dtype("<i4"),
    "int64_list": np.dtype("<i8"),
}

_FLOAT_WIRE = {"float_list": FIXED32, "double_list": FIXED64}
_FEATURES = _FEATURE = _KEY = _LIST_VALUE = 1
_VALUE = 2


@dataclass(
    eq=False, slots=True
)  # not frozen: that would triple the time to make one, and a reader makes two per record
class FeatureValue:
    """One decoded feature: a name of ``KINDS`` (None: no list was set) and its values. It is not changed once made.

    ``values`` is a list of bytes (or views of bytes) for ``bytes_list``, otherwise a one-dimensional array of the
    kind's dtype.
    """

    kind: str | None
    values: Any


# ------------------------------------------------------------------ encoding


def encode_record(features: Mapping[str, FeatureValue]) -> bytes:
    """The serialized OFRecord of these features, in their order."""
    return _encode_map(features, KINDS)


def encode_example(features: Mapping[str, FeatureValue]) -> bytes:
    """The serialized tf.train.Example of these features, in their order. It has no double_list and no int32_list."""
    return block(_FEATURES, _encode_map(features, EXAMPLE_KINDS))


def encode_feature(feature: FeatureValue) -> bytes:
    """The serialized Feature of an OFRecord."""
    return _encode_feature(feature, KINDS)


def encode_list(kind: str, values: Any) -> bytes:
    """The serialized list message of a kind."""
    if kind == "bytes_list":
        return b"".join(block(_LIST_VALUE, bytes(value)) for value in values)
    if len(values) == 0:
        return b""
    return block(_LIST_VALUE, _packed(kind, values))


def _encode_map(features: Mapping[str, FeatureValue], kinds: Mapping[int, str]) -> bytes:
    return b"".join(block(_FEATURE, _entry(key, feature, kinds)) for key, feature in features.items())


def _entry(key: str, feature: FeatureValue, kinds: Mapping[int, str]) -> bytes:
    try:
        return block(_KEY, key.encode()) + block(_VALUE, _encode_feature(feature, kinds))
    except DataError as error:
        raise DataError(f"feature {key!r}: {error}") from None


def _encode_feature(feature: FeatureValue, kinds: Mapping[int, str]) -> bytes:
    if feature.kind is None:
        return b""
    for number, kind in kinds.items():
        if kind == feature.kind:
            return block(number, encode_list(kind, feature.values))
    raise DataError(f"the message has no {feature.kind}; its kinds are {', '.join(kinds.values())}")


def _packed(kind: str, values: Any) -> bytes:
    array = np.asarray(values, DTYPES[kind])
    if kind in _FLOAT_WIRE:
        return array.tobytes()
    return b"".join(varint(value) for value in array.tolist())


# ------------------------------------------------------------------ decoding everything


def decode_record(message: Bytes) -> dict[str, FeatureValue]:
    """The features of a serialized OFRecord. Unknown fields are skipped; of two entries with one key the last counts.

    A message that is cut or malformed is a ``DataError`` that names the byte.
    """
    view = memoryview(message)
    return _decode_map(_COPIES_OF_RECORD, view, 0, len(view))


def decode_example(message: Bytes) -> dict[str, FeatureValue]:
    """The features of a serialized tf.train.Example, by the same rules."""
    view = memoryview(message)
    features: dict[str, FeatureValue] = {}
    for start, end in _maps(view):
        features.update(_decode_map(_COPIES_OF_EXAMPLE, view, start, end))
    return features


def decode_feature(message: Bytes) -> FeatureValue:
    """A serialized Feature of an OFRecord."""
    view = memoryview(message)
    return _decode_feature(_COPIES_OF_RECORD, view, 0, len(view), _UNSET)


def decode_list(kind: str, message: Bytes) -> Any:
    """The values of a serialized list message of a kind."""
    view = memoryview(message)
    return _decode_list(_COPIES_OF_RECORD, kind, view, 0, len(view))


@dataclass(frozen=True)
class _Reading:
    """How a message is read: its kinds, and whether bytes values are copied out of it or left as views."""

    kinds: Mapping[int, str]
    copies: bool


_COPIES_OF_RECORD, _COPIES_OF_EXAMPLE = _Reading(KINDS, True), _Reading(EXAMPLE_KINDS, True)
_VIEWS_OF_RECORD, _VIEWS_OF_EXAMPLE = _Reading(KINDS, False), _Reading(EXAMPLE_KINDS, False)
_UNSET = FeatureValue(None, [])


def _maps(view: memoryview) -> list[tuple[int, int]]:
    """First byte and end of each Features message in an Example; there is one as a rule, several count as one."""
    return [
        (start, end) for field, wire, start, end in fields(view, 0, len(view)) if field == _FEATURES and wire == LEN
    ]


def _decode_map(reading: _Reading, view: memoryview, start: int, end: int) -> dict[str, FeatureValue]:
    features: dict[str, FeatureValue] = {}
    for field, wire, begin, stop in fields(view, start, end):
        if field == _FEATURE and wire == LEN:
            key, feature = _decode_entry(reading, view, begin, stop)
            features[key] = feature
    return features


def _decode_entry(reading: _Reading, view: memoryview, start: int, end: int) -> tuple[str, FeatureValue]:
    key, feature = "", _UNSET
    for field, wire, begin, stop in fields(view, start, end):
        if field == _KEY and wire == LEN:
            key = _text(view, begin, stop)
        elif field == _VALUE and wire == LEN:
            feature = _decode_feature(reading, view, begin, stop, feature)
    return key, feature


def _decode_feature(reading: _Reading, view: memoryview, start: int, end: int, before: FeatureValue) -> FeatureValue:
    feature = before
    for field, wire, begin, stop in fields(view, start, end):
        kind = reading.kinds.get(field)
        if kind is not None and wire == LEN:
            feature = _merge(feature, kind, _decode_list(reading, kind, view, begin, stop))
    return feature


def _merge(before: FeatureValue, kind: str, values: Any) -> FeatureValue:
    """A list sent twice is one list; a list of another kind replaces the one before."""
    if before.kind != kind:
        return FeatureValue(kind, values)
    return FeatureValue(
        kind, before.values + values if kind == "bytes_list" else np.concatenate([before.values, values])
    )


def _decode_list(reading: _Reading, kind: str, view: memoryview, start: int, end: int) -> Any:
    found = [(wire, begin, stop) for field, wire, begin, stop in fields(view, start, end) if field == _LIST_VALUE]
    if kind == "bytes_list":
        entries = [view[begin:stop] for wire, begin, stop in found if wire == LEN]
        return [bytes(entry) for entry in entries] if reading.copies else entries
    numbers = _floats if kind in _FLOAT_WIRE else _integers
    chunks = [numbers(kind, view, wire, begin, stop) for wire, begin, stop in found]
    return chunks[0] if len(chunks) == 1 else np.concatenate([np.empty(0, DTYPES[kind]), *chunks])


def _floats(kind: str, view: memoryview, wire: int, start: int, stop: int) -> np.ndarray:
    dtype = DTYPES[kind]
    if wire not in (LEN, _FLOAT_WIRE[kind]):
        return np.empty(0, dtype)
    if (stop - start) % dtype.itemsize:
        raise DataError(f"byte {start}: a packed {kind} of {stop - start} bytes is no multiple of {dtype.itemsize}")
    return np.frombuffer(view[start:stop], dtype)


def _integers(kind: str, view: memoryview, wire: int, start: int, stop: int) -> np.ndarray:
    if wire not in (LEN, VARINT):
        return np.empty(0, DTYPES[kind])
    raw = np.frombuffer(view[start:stop], np.uint8)
    if raw.size and int(raw.max()) < 0x80:  # every varint is one byte, as in labels and small ids
        return raw.astype(DTYPES[kind])
    return np.array(list(varints(view, start, stop)), np.uint64).astype("<i8").astype(DTYPES[kind])


def _text(view: memoryview, start: int, stop: int) -> str:
    try:
        return str(view[start:stop], "utf-8")
    except UnicodeDecodeError:
        raise DataError(f"byte {start}: a feature's name is not UTF-8") from None


# ------------------------------------------------------------------ decoding some features  A loader wants two features
# of every record and wants them fast. Nearly all messages have each entry in the plain form {key, value} with one list
# in it. That form is read here, in one loop and without looking at values that nobody asked for. A message in any other
# form, also a broken one, goes to the general decoder above, so the result is always the same.


def pick_from_record(message: Bytes, keys: Collection[str]) -> dict[str, FeatureValue]:
    """The features of a serialized OFRecord that are named ``keys``, as far as they are there; bytes are views of the
    message."""
    view = memoryview(message)
    return _pick(_VIEWS_OF_RECORD, view, 0, len(view), _wanted(tuple(keys)))


def pick_from_example(message: Bytes, keys: Collection[str]) -> dict[str, FeatureValue]:
    """The same for a serialized tf.train.Example."""
    view = memoryview(message)
    wanted = _wanted(tuple(keys))
    found: dict[str, FeatureValue] = {}
    for start, end in _maps(view):
        found.update(_pick(_VIEWS_OF_EXAMPLE, view, start, end, wanted))
    return found


@lru_cache(maxsize=64)
def _wanted(keys: tuple[str, ...]) -> dict[bytes, str]:
    return {key.encode(): key for key in keys}


_ENTRY_TAG = _KEY_TAG = _LIST_TAG = 1 << 3 | LEN
_VALUE_TAG = 2 << 3 | LEN


def _pick(
    reading: _Reading, view: memoryview, start: int, end: int, wanted: dict[bytes, str]
) -> dict[str, FeatureValue]:
    try:
        found = _pick_plain(reading, view, start, end, wanted)
    except IndexError:  # the message ends where a byte is missing; the general decoder says which
        found = None
    if found is None:
        every = _decode_map(reading, view, start, end)
        found = {key: every[key] for key in wanted.values() if key in every}
    return found


def _pick_plain(
    reading: _Reading, view: memoryview, at: int, end: int, wanted: dict[bytes, str]
) -> dict[str, FeatureValue] | None:
    """The wanted features of a message in the plain form, None for any other."""
    found: dict[str, FeatureValue] = {}
    while at < end:
        size = view[at + 1]
        begin = at + 2
        if size > 0x7F:
            size, begin = _long(view, at + 1)
        stop = begin + size
        key_end = begin + 2 + view[begin + 1]
        size = view[key_end + 1]
        value = key_end + 2
        if size > 0x7F:
            size, value = _long(view, key_end + 1)
        if (
            view[at] != _ENTRY_TAG
            or view[begin] != _KEY_TAG
            or view[begin + 1] > 0x7F
            or view[key_end] != _VALUE_TAG
            or value + size != stop
            or stop > end
        ):
            return None
        key = bytes(view[begin + 2 : key_end])
        if key in wanted:
            found[wanted[key]] = _plain_feature(reading, view, value, stop)
        at = stop
    return found


def _plain_feature(reading: _Reading, view: memoryview, start: int, end: int) -> FeatureValue:
    if end - start < 4:
        return _decode_feature(reading, view, start, end, _UNSET)
    tag, size, begin = view[start], view[start + 1], start + 2
    if size > 0x7F:
        size, begin = _long(view, start + 1)
    if tag & 7 != LEN or begin + size != end or view[begin] != _LIST_TAG:
        return _decode_feature(reading, view, start, end, _UNSET)
    size, at = view[begin + 1], begin + 2
    if size > 0x7F:
        size, at = _long(view, begin + 1)
    kind = reading.kinds.get(tag >> 3)
    if kind is None or at + size != end:
        return _decode_feature(reading, view, start, end, _UNSET)
    if kind == "bytes_list":
        return FeatureValue(kind, [view[at:end]])
    if kind in _FLOAT_WIRE:
        return FeatureValue(kind, _floats(kind, view, LEN, at, end))
    return FeatureValue(kind, _few_integers(kind, view, at, end))


def _few_integers(kind: str, view: memoryview, start: int, end: int) -> np.ndarray:
    """A packed list; labels and sizes are numbers of one or two bytes."""
    if end - start == 1 and view[start] < 0x80:
        return np.array((view[start],), DTYPES[kind])
    if end - start == 2 and view[start] > 0x7F > view[start + 1]:
        return np.array((view[start] - 0x80 | view[start + 1] << 7,), DTYPES[kind])
    return _integers(kind, view, LEN, start, end)


def _long(view: memoryview, at: int) -> tuple[int, int]:
    """A number that has more than one byte, and the byte behind it."""
    second = view[at + 1]
    if second < 0x80:
        return view[at] - 0x80 | second << 7, at + 2
    third = view[at + 2]
    if third < 0x80:
        return view[at] - 0x80 | second - 0x80 << 7 | third << 14, at + 3
    return read_varint(view, at, len(view))
