"""Records one behind the other in a file: reading them in turn, and writing them.

A record is found by its framing (``framing.py``, ``tfrecord.py``) and understood by its message (``messages.py``).
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Self

from oneflow.engine.core.errors import ArgumentError, DataError
from oneflow.engine.core.record.messages import FeatureValue
from oneflow.engine.data.formats.files import Address, GzipSource, Stream, written_beside
from oneflow.engine.data.formats.formats import FORMATS, Format, named, open_records
from oneflow.engine.data.formats.framing import Framing


class Record:
    """One record as it lies in a part file, and where: ``number`` counts from 0, ``offset`` is the byte where its frame
    begins.

    In a gzip file the offset counts the bytes inside.
    """

    __slots__ = ("path", "number", "offset", "body", "format", "_features")

    def __init__(
        self, path: str, number: int, offset: int, body: memoryview, format: Format = FORMATS["ofrecord"]
    ) -> None:
        self.path = path
        self.number = number
        self.offset = offset
        self.body = body
        self.format = format
        self._features: dict[str, FeatureValue] | None = None

    @property
    def end(self) -> int:
        """The byte behind the record."""
        framing = self.format.framing
        return self.offset + framing.head + len(self.body) + framing.tail

    @property
    def where(self) -> str:
        return where(self.path, self.number, self.offset)

    @property
    def features(self) -> dict[str, FeatureValue]:
        """The decoded message; decoded once, however many features are asked for."""
        if self._features is None:
            try:
                self._features = self.format.decode(self.body)
            except DataError as error:
                raise DataError(f"{self.where}: broken message: {error}") from None
        return self._features

    def pick(self, keys: Collection[str]) -> dict[str, FeatureValue]:
        """The features named ``keys``, those that are there. The rest is not decoded; bytes are views of ``body``."""
        try:
            return self.format.pick(self.body, keys)
        except DataError as error:
            raise DataError(f"{self.where}: broken message: {error}") from None

    def __repr__(self) -> str:
        return f"<Record {self.where}, {len(self.body)} bytes>"


def where(path: str, number: int, offset: int) -> str:
    """The place of a record, as every error names it."""
    return f"{path}: record {number} at byte {offset}"


# ------------------------------------------------------------------ reading


def read_records(path: Address, offset: int = 0, number: int = 0, format: str | None = None) -> Iterator[Record]:
    """The records of one part file from byte ``offset`` on, which is where record ``number`` begins.

    ``format`` is "ofrecord", "tfrecord", or None to tell it by the first bytes. One record is held at a time. A file
    that ends inside a record, holds an impossible length or a wrong checksum is a ``DataError`` naming file, record and
    byte; nothing is allocated for a length that the file cannot hold.
    """
    source, known = open_records(path, format)
    try:
        size = None if isinstance(source, GzipSource) else source.size
        with source.stream() as file:
            file.seek(offset)
            yield from _in_turn(file, source.path, known, offset, number, size)
    finally:
        source.close()


def _in_turn(file: Stream, path: str, format: Format, offset: int, number: int, size: int | None) -> Iterator[Record]:
    framing = format.framing
    head_size, tail_size = framing.head, framing.tail
    while True:
        try:
            head = file.read(head_size)
            if not head:
                return
            length = body_length(framing, head, None if size is None else size - offset - head_size)
            body = file.read(length)
            tail = file.read(tail_size)
            if len(body) + len(tail) != length + tail_size:
                raise DataError(
                    f"got {len(body)} of {length} bytes; the file was cut short, or became shorter while it was read"
                )
            framing.check(body, tail)
        except DataError as error:
            raise DataError(f"{where(path, number, offset)}: {error}") from None
        yield Record(path, number, offset, memoryview(body), format)
        offset += head_size + length + tail_size
        number += 1


def body_length(framing: Framing, head: bytes, left: int | None) -> int:
    """The length of the body behind ``head``, where ``left`` bytes of the file follow the head (None: not known)."""
    if len(head) < framing.head:
        what = "8 bytes of the length" if framing.tail == 0 else f"{framing.head} bytes of the length and its CRC"
        raise DataError(f"the file ends inside the {what}; it was cut short")
    length = framing.length(head)
    if left is not None and length + framing.tail > left:
        raise DataError(f"the record has {length + framing.tail} bytes, the file only {left} more; it was cut short")
    return length


# ------------------------------------------------------------------ writing


# An OFRecord file has no record of length 0: one without features holds a field that no reader knows, and all pass
# over.
_NO_FEATURES = b"\x78\x00"


class RecordWriter:
    """Writes a part file: beside the target under another name, renamed when all is on disk.

    Use it as a context manager. If the body raises, nothing appears at ``path`` and what was there stays. ``format`` is
    "ofrecord" or "tfrecord"; ``compression`` is "gzip" for a TFRecord file that is to be packed.
    """

    def __init__(self, path: Address, format: str = "ofrecord", compression: str | None = None) -> None:
        self.path = os.fspath(path)
        self.count = 0
        self._format = named(format)
        if compression not in (None, "gzip") or (compression and format != "tfrecord"):
            raise ArgumentError(
                f"{self.path}: compression is None, or 'gzip' for a TFRecord file; got {compression!r} for {format}"
            )
        self._compression = compression
        self._open: ExitStack | None = None
        self._file: Any = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._file = stack.enter_context(written_beside(self.path))
            if self._compression:  # no name, no time: the same records make the same file
                self._file = stack.enter_context(gzip.GzipFile(filename="", mode="wb", fileobj=self._file, mtime=0))
            self._open = stack.pop_all()
        return self

    def write(self, message: Any) -> None:
        """Appends one record: bytes, a mapping of feature names to ``FeatureValue``, or a message with
        ``SerializeToString``."""
        body = self._body(message)
        least = 0 if self._format.framing.tail else 1
        largest = self._format.framing.largest
        if not least <= len(body) <= largest:
            raise ArgumentError(f"{self.path}: a record has between {least} and {largest} bytes, this one {len(body)}")
        if self._open is None:
            raise ArgumentError(f"{self.path}: the writer is not open; use it in a with statement")
        for piece in self._format.frame(body):
            self._file.write(piece)
        self.count += 1

    def _body(self, message: Any) -> bytes:
        if hasattr(message, "SerializeToString"):
            return message.SerializeToString()
        if isinstance(message, Mapping) and all(isinstance(value, FeatureValue) for value in message.values()):
            return self._format.encode(message) or _NO_FEATURES
        if isinstance(message, (bytes, bytearray, memoryview)):
            return bytes(message)
        raise ArgumentError(
            f"{self.path}: a record is bytes, a mapping of names to oneflow.data.FeatureValue, or a message of "
            f"record_pb2; got {message!r:.200}"
        )

    def __exit__(self, *error: Any) -> None:
        assert self._open is not None
        stack, self._open, self._file = self._open, None, None
        stack.__exit__(*error)


def write_records(
    path: Address, messages: Iterable[Any], format: str = "ofrecord", compression: str | None = None
) -> None:
    """Writes a whole part file, complete or not at all."""
    with RecordWriter(path, format, compression) as writer:
        for message in messages:
            writer.write(message)
