"""RecordReader: batches of records out of part files, without end, resumable anywhere."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from oneflow.core.errors import DataError
from oneflow.data import order
from oneflow.data.records import Record, read_records

_VERSION = 1


@dataclass(frozen=True)
class Position:
    """Where the next record is read: the epoch, the turn of its part within the epoch, the record's number and byte."""

    epoch: int = 0
    turn: int = 0
    record: int = 0
    offset: int = 0


class RecordReader:
    """Reads parts in turn, for ever; a batch may straddle the end of an epoch and is never short.

    The order depends on nothing but the arguments and the files, so it is the same on any number of devices.
    ``buffer_size`` 0 reads in file order, otherwise records are mixed in a buffer of that many. Files are opened when the
    first batch is asked for; that they are there is checked at once.
    """

    def __init__(
        self, paths: Sequence[str], batch_size: int, buffer_size: int = 0, shuffle_after_epoch: bool = False, seed: int = 0
    ) -> None:
        self.paths = list(paths)
        self.batch_size = batch_size
        self._buffer: order.ShuffleBuffer[Record] | None = order.ShuffleBuffer(buffer_size, seed) if buffer_size else None
        self._shuffle_parts = shuffle_after_epoch
        self._seed = seed
        self._files = [[os.path.basename(path), _size(path)] for path in self.paths]
        self._batches = 0
        self._last: list[Record] | None = None
        self._restart(Position())

    def batch(self, number: int) -> list[Record]:
        """Batch ``number``, counted from 0. All who share the reader ask for the same numbers in turn: the next, or the last again."""
        if number == self._batches:
            self._last = [self._take() for _ in range(self.batch_size)]
            self._batches += 1
        if number != self._batches - 1 or self._last is None:
            raise DataError(f"batch {number} was asked for where batch {self._batches} is next; decoders of one reader go in step")
        return self._last

    def state(self) -> dict[str, Any]:
        """Plain data (fit for JSON) from which ``load_state`` goes on with the batch that would come next."""
        buffer = self._buffer
        return {
            "version": _VERSION,
            "order": self._order(),
            "batches": self._batches,
            "position": asdict(self._position),
            "drawn": buffer.drawn if buffer else 0,
            "held": [[self._index[r.path], r.number, r.offset] for r in buffer.held] if buffer else [],
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Goes to where ``state`` was taken. The files and the way they are shuffled must be those of then."""
        if state == self.state():
            return
        if state.get("version") != _VERSION or state.get("order") != self._order():
            raise DataError(
                f"the saved position of a reader belongs to {state.get('order')}, this reader has {self._order()}; "
                "go on with the same part files and shuffle arguments, or start without the saved position"
            )
        self._batches, self._last = state["batches"], None
        self._restart(Position(**state["position"]))
        if self._buffer is not None:
            self._buffer.drawn = state["drawn"]
            self._buffer.held = [next(read_records(self.paths[part], offset, number)) for part, number, offset in state["held"]]

    def _order(self) -> dict[str, Any]:
        """All that the order of records depends on."""
        buffer_size = self._buffer.size if self._buffer else 0
        return {"files": self._files, "buffer_size": buffer_size, "shuffle_after_epoch": self._shuffle_parts, "seed": self._seed}

    @property
    def _index(self) -> dict[str, int]:
        return {path: index for index, path in enumerate(self.paths)}

    def _restart(self, position: Position) -> None:
        self._position = position
        self._stream = self._records(position)

    def _take(self) -> Record:
        return self._buffer.take(self._stream) if self._buffer else next(self._stream)

    def _records(self, start: Position) -> Iterator[Record]:
        parts = order.cycle(len(self.paths), self._shuffle_parts, self._seed, start.epoch, start.turn)
        empty_parts = 0
        for epoch, turn, part in parts:
            empty_parts += 1
            for record in read_records(self.paths[part], start.offset, start.record):
                self._position = Position(epoch, turn, record.number + 1, record.end)
                empty_parts = 0
                yield record
            if empty_parts > len(self.paths):
                raise DataError(f"there is not one record in {self.paths[0]} and the other parts ({len(self.paths)} in all)")
            start = Position()


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError as error:
        raise DataError(
            f"part file {path} cannot be read: {error.strerror}; "
            "check the directory, data_part_num, part_name_prefix and part_name_suffix_length"
        ) from None
