"""Numeric arrays of MATLAB files of version 5, as far as data sets use them.

A file is a header of 128 bytes and elements, each with a tag (type, size); small ones have both and the data in eight
bytes. An element of type 15 is another one, compressed; of type 14, an array: flags, dims, name and numbers, each an
element.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator

import numpy as np

from oneflow.engine.core.errors import DataError

_HEADER = 128
_MATRIX, _COMPRESSED = 14, 15
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}


def load_arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The numeric arrays of a file by name, in their own order of dims."""
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            data = file.read()
    except OSError as error:
        raise DataError(f"{name} cannot be read: {error.strerror}") from None
    if len(data) < _HEADER or data[126:128] not in (b"IM", b"MI"):
        raise DataError(f"{name} is no MATLAB file of version 5")
    order = "<" if data[126:128] == b"IM" else ">"
    try:
        return dict(_arrays(memoryview(data)[_HEADER:], order))
    except (struct.error, zlib.error, ValueError, IndexError, KeyError) as error:
        raise DataError(f"{name} is damaged or cut short: {error}") from None


def _arrays(data: memoryview, order: str) -> Iterator[tuple[str, np.ndarray]]:
    for kind, content in _elements(data, order):
        if kind == _COMPRESSED:
            yield from _arrays(memoryview(zlib.decompress(content)), order)
        elif kind == _MATRIX and (found := _array(content, order)):
            yield found


def _elements(data: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    at = 0
    while at + 8 <= len(data):
        kind, size = struct.unpack_from(order + "II", data, at)
        if kind >> 16:  # small: size and type share the first four bytes
            kind, size, begin, after = kind & 0xFFFF, kind >> 16, at + 4, at + 8
        else:
            begin = at + 8
            after = begin + size if kind == _COMPRESSED else begin + (size + 7) // 8 * 8
        if begin + size > len(data):
            raise ValueError(f"an element of {size} bytes at byte {at} goes beyond the end")
        yield kind, data[begin : begin + size]
        at = after


def _array(content: memoryview, order: str) -> tuple[str, np.ndarray] | None:
    (_, flags), (_, dims), (_, name), *rest = _elements(content, order)
    dtype = _CLASSES.get(flags[0] if order == "<" else flags[3])
    if dtype is None or not rest:  # texts, cells and structures
        return None
    kind, numbers = rest[0]
    shape = np.frombuffer(dims, order + "i4")
    values = np.frombuffer(numbers, order + _NUMBERS[kind]).astype(dtype)
    return bytes(name).decode("ascii"), values.reshape(shape, order="F")
