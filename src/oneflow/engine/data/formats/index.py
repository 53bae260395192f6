"""RecordFile: any record of a file by its number.

Where each record begins is found once, by hopping over the lengths, and kept beside the file as ``<file>.idx``:

    magic   size of the data file   its stamp   number of records   head + tail of the framing   crc32 of the offsets
    8s      uint64                  uint64      uint64              uint32                       uint32

and then one uint64 per record: the byte where its frame begins. An index that does not fit its file is made anew.
"""

from __future__ import annotations

import itertools
import struct
import zlib
from array import array
from collections.abc import Iterator

import numpy as np

from oneflow.engine.core.errors import DataError
from oneflow.engine.data.formats.files import Address, GzipSource, Source, open_source, written_beside
from oneflow.engine.data.formats.formats import Format, open_records
from oneflow.engine.data.formats.framing import Framing
from oneflow.engine.data.formats.records import Record, body_length, read_records, where

_HEADER = struct.Struct("<8sQQQII")
_MAGIC = b"ofidx\0\0\1"
SUFFIX = ".idx"


class RecordFile:
    """The records of one file as a sequence; ``file[i]`` may be asked from many threads.

    ``format`` is "ofrecord", "tfrecord" (gzip or not), or None to tell it by the first bytes. A file that is damaged in
    its framing is a ``DataError`` naming record and byte; with ``tolerant`` the records before the damage can be read
    and ``damage`` holds that error. A TFRecord whose checksum is wrong is an error when that record is read.
    """

    def __init__(self, path: Address, format: str | None = None, tolerant: bool = False) -> None:
        self._source, self._format = open_records(path, format)
        self.damage: DataError | None = None
        try:
            self._index(tolerant)
        except BaseException:
            self._source.close()
            raise

    def _index(self, tolerant: bool) -> None:
        self.size = self._source.size
        offsets = _load(self._source, self._format)
        if offsets is None:
            offsets, self.damage = _hop(self._source, self._format.framing)
            if isinstance(self._source, GzipSource) and self._source.damage is not None:
                end = _end_of_last(self._source, self._format.framing, offsets)
                self.damage = DataError(f"{where(self.path, len(offsets), end)}: {self._source.damage}")
            if self.damage is None:
                _keep(self._source, self._format, offsets)
            elif not tolerant:
                raise self.damage
        end = self.size if self.damage is None else _end_of_last(self._source, self._format.framing, offsets)
        self._bounds = array(
            "q", np.append(offsets, np.uint64(end)).astype(np.int64).tobytes()
        )  # gives ints, unlike numpy

    @property
    def path(self) -> str:
        return self._source.path

    @property
    def format(self) -> str:
        return self._format.name

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def __getitem__(self, number: int) -> Record:
        if number < 0:
            number += len(self)
        if not 0 <= number < len(self):
            raise IndexError(f"{self.path} has {len(self)} records, number {number} was asked for")
        offset, end = self._bounds[number], self._bounds[number + 1]
        frame = self._source.read_at(offset, end - offset)
        try:
            body = _body(self._format.framing, frame, end - offset)
        except DataError as error:
            raise DataError(f"{where(self.path, number, offset)}: {error}") from None
        return Record(self.path, number, offset, body, self._format)

    def __iter__(self) -> Iterator[Record]:
        """The records in turn, read in one go through the file; one is held at a time."""
        yield from itertools.islice(read_records(self.path, format=self._format.name), len(self))

    def offset(self, number: int) -> int:
        """The byte where a record begins; for ``len(file)`` the byte behind the last."""
        return self._bounds[number]

    def close(self) -> None:
        """Closes the file. Records that were read stay."""
        self._source.close()

    def __enter__(self) -> RecordFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RecordFile {self.path}, {self.format}, {len(self)} records>"


def _body(framing: Framing, frame: bytes, expected: int) -> memoryview:
    """The body within the bytes of a whole frame, checked."""
    if len(frame) != expected:
        raise DataError(f"got {len(frame)} of {expected} bytes; the file became shorter while it was read")
    length = framing.length(frame[: framing.head])
    if framing.head + length + framing.tail != expected:
        raise DataError(
            f"length {length} where the index has {expected - framing.head - framing.tail}; the file changed while it "
            f"was read"
        )
    if framing.tail:  # the checksum wants bytes, and a view would keep the frame alive anyway
        body = frame[framing.head : framing.head + length]
        framing.check(body, frame[framing.head + length :])
        return memoryview(body)
    return memoryview(frame)[framing.head :]


def _hop(source: Source, framing: Framing) -> tuple[np.ndarray, DataError | None]:
    """Where each frame begins, and what is wrong behind the last good one, if anything."""
    offsets: list[int] = []
    offset, size = 0, source.size
    try:
        while offset < size:
            head = source.read_at(offset, framing.head)
            length = body_length(framing, head, size - offset - framing.head)
            offsets.append(offset)
            offset += framing.head + length + framing.tail
    except DataError as error:
        damage = DataError(f"{where(source.path, len(offsets), offset)}: {error}")
        return np.array(offsets, np.uint64), damage
    return np.array(offsets, np.uint64), None


def _end_of_last(source: Source, framing: Framing, offsets: np.ndarray) -> int:
    if not len(offsets):
        return 0
    last = int(offsets[-1])
    return last + framing.head + framing.length(source.read_at(last, framing.head)) + framing.tail


def _load(source: Source, format: Format) -> np.ndarray | None:
    """The kept index of a file, or None where there is none that fits."""
    try:
        kept = open_source(source.path + SUFFIX)
        data = kept.read_at(0, kept.size)
        kept.close()
        magic, size, stamp, count, framing, crc = _HEADER.unpack_from(data)
        offsets = data[_HEADER.size :]
    except (DataError, struct.error):
        return None
    wanted = (
        _MAGIC,
        source.size,
        source.stamp,
        format.framing.head + format.framing.tail,
        8 * count,
        zlib.crc32(offsets),
    )
    if (magic, size, stamp, framing, len(offsets), crc) != wanted:
        return None
    return np.frombuffer(offsets, "<u8")


def _keep(source: Source, format: Format, offsets: np.ndarray) -> None:
    """Writes the index beside the file. Where that cannot be done, it is made again next time."""
    data = offsets.astype("<u8").tobytes()
    overhead = format.framing.head + format.framing.tail
    header = _HEADER.pack(_MAGIC, source.size, source.stamp, len(offsets), overhead, zlib.crc32(data))
    try:
        with written_beside(source.path + SUFFIX) as file:
            file.write(header + data)
    except Exception:  # a read-only folder, a full disk, a web address: file systems have many ways to refuse
        pass
