"""Sorted tables of keys and values, as TensorFlow's checkpoints are kept: blocks with a CRC each, an index of them, a
footer.

file     data blocks, a meta index block, an index block, footer of 48 bytes
block    entries, restart points; behind it one byte for the packing and a masked CRC-32C of both
entry    bytes shared with the key before, bytes of the key's rest, bytes of the value; rest; value
footer   places of the meta index and the index, zeros, a magic number
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from flowvision.models.slim.checkpoint.snappy import unpacked
from oneflow.engine.core.errors import DataError
from oneflow.engine.core.record.wire import read_varint, varint
from oneflow.engine.data.formats.tfrecord import masked_crc

MAGIC = 0xDB4775248B80FB57
_FOOTER, _TRAILER, _PLAIN, _SNAPPY = 48, 5, 0, 1
_BLOCK_SIZE, _RESTART_EVERY = 1 << 18, 16


class Entry(NamedTuple):
    """A key with its value, and the byte of the file where its block begins."""

    key: bytes
    value: memoryview
    block: int


def is_table(path: Path) -> bool:
    """Whether a file ends as a table does."""
    with path.open("rb") as file:
        if file.seek(0, 2) < _FOOTER:
            return False
        file.seek(-8, 2)
        return struct.unpack("<Q", file.read(8))[0] == MAGIC


def read_table(path: Path) -> Iterator[Entry]:
    """Every entry in order, each block checked before it is believed. Errors name the file and the block."""
    with path.open("rb") as file:
        if file.seek(0, 2) < _FOOTER:
            raise DataError(f"{path} has {file.tell()} bytes; no TensorFlow checkpoint, or it was cut off")
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    footer = view[len(view) - _FOOTER :]
    if struct.unpack("<Q", footer[40:])[0] != MAGIC:
        raise DataError(f"{path} does not end as TensorFlow's checkpoints do; it is another file, or was cut off")
    _, at = _handle(path, footer[:40], 0)
    place, _ = _handle(path, footer[:40], at)
    for _, handle, _ in _entries(path, view, place):
        inner, _ = _handle(path, handle, 0)
        yield from _entries(path, view, inner)


class Place(NamedTuple):
    offset: int
    size: int


def _handle(path: Path, view: memoryview, at: int) -> tuple[Place, int]:
    try:
        offset, at = read_varint(view, at, len(view))
        size, at = read_varint(view, at, len(view))
    except DataError as error:
        raise DataError(f"{path}: the place of a block is damaged: {error}") from None
    return Place(offset, size), at


def _entries(path: Path, view: memoryview, place: Place) -> Iterator[Entry]:
    block = _block(path, view, place)
    try:
        end = len(block) - 4
        if end < 0 or (end := end - 4 * struct.unpack("<I", block[end:])[0]) < 0:
            raise DataError("its restart points do not fit into it")
        at, key = 0, b""
        while at < end:
            shared, at = read_varint(block, at, end)
            rest, at = read_varint(block, at, end)
            length, at = read_varint(block, at, end)
            if shared > len(key) or at + rest + length > end:
                raise DataError(f"the entry at its byte {at} does not fit into it")
            key = key[:shared] + bytes(block[at : at + rest])
            yield Entry(key, block[at + rest : at + rest + length], place.offset)
            at += rest + length
    except DataError as error:
        raise DataError(f"{path}, block at byte {place.offset}: {error}") from None


def _block(path: Path, view: memoryview, place: Place) -> memoryview:
    where = f"{path}, block at byte {place.offset}"
    stop = place.offset + place.size
    if stop + _TRAILER > len(view) - _FOOTER:
        raise DataError(
            f"{where}: {place.size} bytes of it are said to be there, the file ends at {len(view)}; it was cut off"
        )
    stored = struct.unpack("<I", view[stop + 1 : stop + _TRAILER])[0]
    found = masked_crc(bytes(view[place.offset : stop + 1]))
    if stored != found:
        raise DataError(
            f"{where}: its CRC is {stored:#010x} in the file and {found:#010x} by its bytes; the file is damaged"
        )
    packing = view[stop]
    if packing == _PLAIN:
        return view[place.offset : stop]
    if packing != _SNAPPY:
        raise DataError(f"{where}: packed in way {packing}; 0 (not at all) and 1 (snappy) are known")
    try:
        return memoryview(unpacked(view[place.offset : stop]))
    except DataError as error:
        raise DataError(f"{where}: {error}") from None


def write_table(file: BinaryIO, entries: Iterable[tuple[bytes, bytes]]) -> None:
    """Writes entries, whose keys ascend, in plain blocks."""
    index: list[tuple[bytes, bytes]] = []
    block, written = _Building(), 0
    last = b""
    for key, value in entries:
        if block.size >= _BLOCK_SIZE:
            index.append((last, _place(written, block.data())))
            written += _write_block(file, block.data())
            block = _Building()
        block.add(key, value)
        last = key
    if block.count:
        index.append((last, _place(written, block.data())))
        written += _write_block(file, block.data())
    meta = _Building().data()
    meta_place, written = _place(written, meta), written + _write_block(file, meta)
    of_index = _Building(restart_every=1)
    for key, value in index:
        of_index.add(key, value)
    footer = meta_place + _place(written, of_index.data())
    _write_block(file, of_index.data())
    file.write(footer.ljust(40, b"\0") + struct.pack("<Q", MAGIC))


class _Building:
    """A block while it grows: keys share their beginnings, save at every restart point."""

    def __init__(self, restart_every: int = _RESTART_EVERY) -> None:
        self._parts: list[bytes] = []
        self._restarts, self._every = [0], restart_every
        self._last = b""
        self.size = self.count = 0

    def add(self, key: bytes, value: bytes) -> None:
        shared = 0
        if self.count and self.count % self._every == 0:
            self._restarts.append(self.size)
        elif self.count:
            limit = min(len(key), len(self._last))
            shared = next((at for at in range(limit) if key[at] != self._last[at]), limit)
        part = varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        self._parts.append(part)
        self.size, self.count, self._last = self.size + len(part), self.count + 1, key

    def data(self) -> bytes:
        return b"".join(self._parts) + struct.pack(f"<{len(self._restarts)}II", *self._restarts, len(self._restarts))


def _place(offset: int, data: bytes) -> bytes:
    return varint(offset) + varint(len(data))


def _write_block(file: BinaryIO, data: bytes) -> int:
    whole = data + bytes([_PLAIN])
    file.write(whole + struct.pack("<I", masked_crc(whole)))
    return len(whole) + 4
