"""The idx format of MNIST: a big-endian header (magic, then one size a dimension) and the bytes, often gzipped."""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from math import prod

import numpy as np

from oneflow.engine.core.errors import DataError

_UNSIGNED_BYTES = 0x08


def read_idx(path: str | os.PathLike[str], dims: int) -> np.ndarray:
    """The uint8 array of ``dims`` dimensions in an idx file, plain or gzipped.

    A file that is no idx file of that many dimensions, is cut short or has bytes left over is a ``DataError``.
    """
    name = os.fspath(path)
    data = _content(name)
    header = 4 + 4 * dims
    if len(data) < header:
        raise DataError(f"{name}: {len(data)} bytes, less than the {header} of an idx header; the file was cut short")
    magic, *shape = struct.unpack_from(f">{1 + dims}I", data)
    expected = _UNSIGNED_BYTES << 8 | dims
    if magic != expected:
        raise DataError(
            f"{name}: wrong magic number {magic:#010x}, an idx file of {dims} dimensions of bytes begins with "
            f"{expected:#010x}"
        )
    if len(data) - header != prod(shape):
        raise DataError(f"{name}: the header says {' x '.join(map(str, shape))} bytes, {len(data) - header} follow")
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read()
        return gzip.decompress(data) if path.endswith(".gz") else data
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: broken gzip file: {error}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
