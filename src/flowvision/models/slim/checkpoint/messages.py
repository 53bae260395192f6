"""The protobuf messages in TensorFlow's checkpoints, as far as arrays need them: numbers of fields, dtypes, and keys of
slices."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from oneflow.engine.core.errors import DataError
from oneflow.engine.core.record.wire import LEN, VARINT, block, fields, read_varint, varint, varints

STRING, BFLOAT16 = 7, 14
DTYPES: dict[int, np.dtype] = {
    1: np.dtype("float32"),
    2: np.dtype("float64"),
    3: np.dtype("int32"),
    4: np.dtype("uint8"),
    5: np.dtype("int16"),
    6: np.dtype("int8"),
    8: np.dtype("complex64"),
    9: np.dtype("int64"),
    10: np.dtype("bool"),
    BFLOAT16: np.dtype("uint16"),  # the upper half of a float32, which numpy has no name for
    17: np.dtype("uint16"),
    18: np.dtype("complex128"),
    19: np.dtype("float16"),
    22: np.dtype("uint32"),
    23: np.dtype("uint64"),
}
NUMBERS = {dtype: number for number, dtype in DTYPES.items() if number != BFLOAT16}

Extent = tuple[int, int | None]  # start, and length or None for all


@dataclass
class BundleEntry:
    """Where a V2 checkpoint keeps an array."""

    dtype: int = 0
    shape: tuple[int, ...] = ()
    shard: int = 0
    offset: int = 0
    size: int = 0
    crc: int | None = None
    slices: list[list[Extent]] = field(default_factory=list)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _numbers(view: memoryview) -> dict[int, int]:
    """The fields of a message that are numbers."""
    found = {}
    for number, wire, start, stop in fields(view, 0, len(view)):
        if wire == VARINT:
            found[number] = read_varint(view, start, stop)[0]
    return found


def shape_of(view: memoryview) -> tuple[int, ...]:
    """TensorShapeProto: field 2 is a dim, whose field 1 is the size."""
    return tuple(
        _signed(_numbers(view[start:stop]).get(1, 0))
        for number, wire, start, stop in fields(view, 0, len(view))
        if number == 2 and wire == LEN
    )


def slice_of(view: memoryview) -> list[Extent]:
    """TensorSliceProto: field 1 is an extent with start and length; without a length it is the whole dimension."""
    extents: list[Extent] = []
    for number, wire, start, stop in fields(view, 0, len(view)):
        if number == 1 and wire == LEN:
            numbers = _numbers(view[start:stop])
            extents.append((numbers.get(1, 0), numbers.get(2)))
    return extents


def bundle_header(view: memoryview) -> tuple[int, bool]:
    """Number of data files, and whether they are big-endian."""
    numbers = _numbers(view)
    return numbers.get(1, 0), numbers.get(2, 0) == 1


def bundle_entry(view: memoryview) -> BundleEntry:
    entry = BundleEntry()
    for number, wire, start, stop in fields(view, 0, len(view)):
        part = view[start:stop]
        if number == 2 and wire == LEN:
            entry.shape = shape_of(part)
        elif number == 7 and wire == LEN:
            entry.slices.append(slice_of(part))
        elif number == 6 and len(part) == 4:
            entry.crc = struct.unpack("<I", part)[0]
        elif wire == VARINT and number in (1, 3, 4, 5):
            setattr(entry, {1: "dtype", 3: "shard", 4: "offset", 5: "size"}[number], read_varint(view, start, stop)[0])
    return entry


def written_bundle_entry(dtype: int, shape: tuple[int, ...], offset: int, size: int, crc: int) -> bytes:
    dims = b"".join(block(2, varint(1 << 3) + varint(dim)) for dim in shape)
    start = varint(4 << 3) + varint(offset) if offset else b""
    length = varint(5 << 3) + varint(size) if size else b""
    return (
        varint(1 << 3) + varint(dtype) + block(2, dims) + start + length + bytes([6 << 3 | 5]) + struct.pack("<I", crc)
    )


def written_bundle_header() -> bytes:
    """One data file, little-endian, written by format version 1."""
    return varint(1 << 3) + varint(1) + block(3, varint(1 << 3) + varint(1))


# ------------------------------------------------------------------ V1


def saved_tensors(view: memoryview) -> Iterator[tuple[str, tuple[int, ...], int]]:
    """Name, shape and dtype of every array, of the entry with the empty key."""
    for number, wire, start, stop in fields(view, 0, len(view)):
        if number == 1 and wire == LEN:
            meta = view[start:stop]
            for inner, kind, begin, end in fields(meta, 0, len(meta)):
                if inner == 1 and kind == LEN:
                    yield _slice_meta(meta[begin:end])


def _slice_meta(view: memoryview) -> tuple[str, tuple[int, ...], int]:
    name, dtype = "", 0
    shape: tuple[int, ...] = ()
    for number, wire, start, stop in fields(view, 0, len(view)):
        if number == 1 and wire == LEN:
            name = bytes(view[start:stop]).decode("utf-8", "replace")
        elif number == 2 and wire == LEN:
            shape = shape_of(view[start:stop])
        elif number == 3 and wire == VARINT:
            dtype = read_varint(view, start, stop)[0]
    return name, shape, dtype


def saved_slice(view: memoryview) -> tuple[str, list[Extent], memoryview]:
    """Name, place and TensorProto of a part of an array."""
    for number, wire, start, stop in fields(view, 0, len(view)):
        if number == 2 and wire == LEN:
            data = view[start:stop]
            name, extents, values = "", [], data[:0]
            for inner, kind, begin, end in fields(data, 0, len(data)):
                if inner == 1 and kind == LEN:
                    name = bytes(data[begin:end]).decode("utf-8", "replace")
                elif inner == 2 and kind == LEN:
                    extents = slice_of(data[begin:end])
                elif inner == 3 and kind == LEN:
                    values = data[begin:end]
            return name, extents, values
    raise DataError("an entry without data")


_PACKED: dict[int, np.dtype] = {
    5: np.dtype("<f4"),
    6: np.dtype("<f8"),
    9: np.dtype("<f4"),
    12: np.dtype("<f8"),
}  # fields of floats, doubles and complex numbers
_INTEGERS = {7, 10, 11, 13, 16, 17}  # int, int64, bool, half, uint32, uint64


def tensor_values(view: memoryview, dtype: int) -> np.ndarray:
    """The numbers of a TensorProto, flat."""
    parts: list[np.ndarray] = []
    numpy_dtype = DTYPES[dtype]
    for number, wire, start, stop in fields(view, 0, len(view)):
        part = view[start:stop]
        if number == 4 and wire == LEN:
            parts.append(np.frombuffer(part, numpy_dtype))
        elif number in _PACKED:
            parts.append(np.frombuffer(part, _PACKED[number]))
        elif number in _INTEGERS:
            parts.append(_integers(view, start, stop, numpy_dtype, number == 13))
    if not parts:
        return np.empty(0, numpy_dtype)
    values = np.concatenate(parts)
    return (
        values.view(numpy_dtype)
        if numpy_dtype.kind == "c" and values.dtype.kind == "f"
        else values.astype(numpy_dtype, copy=False)
    )


def _integers(view: memoryview, start: int, stop: int, dtype: np.dtype, are_bits: bool) -> np.ndarray:
    values = [_signed(value) for value in varints(view, start, stop)]
    if are_bits:  # half and bfloat16 numbers are kept as their bits
        return np.array(values, np.uint16).view(dtype)
    return np.array(values, np.int64).astype(dtype)


# ------------------------------------------------------------------ keys of slices


def slice_key(name: str, extents: list[Extent]) -> bytes:
    """The key under which a part of an array is kept: numbers and strings so encoded that keys sort as what they
    mean."""
    key = _increasing(0) + _escaped(name.encode()) + b"\x00\x01" + _increasing(len(extents))
    for start, length in extents:
        key += _signed_increasing(start) + _signed_increasing(-1 if length is None else length)
    return key


def _escaped(text: bytes) -> bytes:
    return b"".join({0: b"\x00\xff", 255: b"\xff\x00"}.get(byte, bytes([byte])) for byte in text)


def _increasing(value: int) -> bytes:
    body = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes([len(body)]) + body


def _signed_increasing(value: int) -> bytes:
    """A header of as many one bits as there are bytes, then the number; the bits of negative ones are turned."""
    magnitude = ~value if value < 0 else value
    length = max(1, -(-(magnitude.bit_length() + 1) // 7))
    bits = 8 * length
    whole = value & ((1 << bits) - 1)
    header = ((1 << length) - 1) << (bits - length)
    return (whole ^ header).to_bytes(length, "big")
