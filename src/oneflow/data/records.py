"""Part files: records one behind the other, each an 8-byte little-endian signed length and that many bytes."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, BinaryIO, Self

from oneflow.core.errors import ArgumentError, DataError
from oneflow.data.messages import FeatureValue, decode_record

LENGTH = struct.Struct("<q")
LARGEST_RECORD = 64 << 20
_READ_AHEAD = 1 << 20


class Record:
    """One record as it lies in a part file, and where: ``number`` counts from 0, ``offset`` is the byte of its length."""

    def __init__(self, path: str, number: int, offset: int, body: bytes) -> None:
        self.path = path
        self.number = number
        self.offset = offset
        self.body = body

    @property
    def end(self) -> int:
        """The byte behind the record."""
        return self.offset + LENGTH.size + len(self.body)

    @property
    def where(self) -> str:
        return _where(self.path, self.number, self.offset)

    @cached_property
    def features(self) -> dict[str, FeatureValue]:
        """The decoded message; decoded once, however many features are asked for."""
        try:
            return decode_record(self.body)
        except DataError as error:
            raise DataError(f"{self.where}: broken message: {error}") from None


def read_records(path: str | os.PathLike[str], offset: int = 0, number: int = 0) -> Iterator[Record]:
    """The records of one part file from byte ``offset`` on, which is where record ``number`` begins.

    One record is held at a time. A file that ends inside a record or holds an impossible length is a ``DataError`` naming
    file, record and byte; nothing is allocated for a length that the file cannot hold.
    """
    name = os.fspath(path)
    with _open(name) as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(offset)
        while offset < size:
            record = _read(file, name, number, offset, size)
            yield record
            offset, number = record.end, number + 1


def _open(path: str) -> BinaryIO:
    try:
        return open(path, "rb", buffering=_READ_AHEAD)
    except OSError as error:
        raise DataError(f"{path}: the part file cannot be opened: {error.strerror}") from None


def _read(file: BinaryIO, path: str, number: int, offset: int, size: int) -> Record:
    left = size - offset - LENGTH.size
    if left < 0:
        raise DataError(f"{_where(path, number, offset)}: the file ends inside the 8 bytes of the length; it was cut short")
    (length,) = LENGTH.unpack(file.read(LENGTH.size))
    if not 0 < length <= LARGEST_RECORD:
        raise DataError(
            f"{_where(path, number, offset)}: length {length} is not between 1 and {LARGEST_RECORD}; "
            "this is no OFRecord part file, or it is damaged from here on"
        )
    if length > left:
        raise DataError(f"{_where(path, number, offset)}: the record has {length} bytes, the file only {left} more; it was cut short")
    body = file.read(length)
    if len(body) != length:
        raise DataError(f"{_where(path, number, offset)}: got {len(body)} of {length} bytes; the file became shorter while it was read")
    return Record(path, number, offset, body)


def _where(path: str, number: int, offset: int) -> str:
    return f"{path}: record {number} at byte {offset}"


class RecordWriter:
    """Writes a part file: beside the target under another name, renamed when all is on disk.

    Use it as a context manager. If the body raises, nothing appears at ``path`` and what was there stays.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._beside = f"{self.path}.{os.getpid()}.tmp"
        self._file: BinaryIO | None = None

    def __enter__(self) -> Self:
        self._file = open(self._beside, "wb")
        return self

    def write(self, message: Any) -> None:
        """Appends one record: bytes, or a message with ``SerializeToString`` such as ``record_pb2.OFRecord``."""
        body = message.SerializeToString() if hasattr(message, "SerializeToString") else bytes(message)
        if not 0 < len(body) <= LARGEST_RECORD:
            raise ArgumentError(f"{self.path}: a record has between 1 and {LARGEST_RECORD} bytes, this one {len(body)}")
        if self._file is None:
            raise ArgumentError(f"{self.path}: the writer is not open; use it in a with statement")
        self._file.write(LENGTH.pack(len(body)))
        self._file.write(body)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._file is not None
        with self._file as file:
            self._file = None
            if kind is None:
                file.flush()
                os.fsync(file.fileno())
        if kind is None:
            os.replace(self._beside, self.path)
        else:
            os.unlink(self._beside)


def write_records(path: str | os.PathLike[str], messages: Iterable[Any]) -> None:
    """Writes a whole part file, complete or not at all."""
    with RecordWriter(path) as writer:
        for message in messages:
            writer.write(message)
