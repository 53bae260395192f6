"""Files that hold nothing but numbers: rows of one shape and dtype, one behind the other."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from oneflow.engine.core.errors import DataError
from oneflow.engine.core.spec import TensorSpec
from oneflow.engine.data.order import permutation


class RawRows:
    """Batches of the rows of ``files``, without end. With ``shuffle`` every epoch has a random order of its own, in
    which blocks of ``block`` neighbours stay together."""

    def __init__(
        self,
        files: Sequence[str | os.PathLike[str]],
        row: TensorSpec,
        batch_size: int,
        shuffle: bool,
        block: int,
        seed: int,
    ) -> None:
        self._maps = [_mapped(os.fspath(path), row) for path in files]
        self._files = [[os.path.basename(path), len(rows)] for path, rows in zip(files, self._maps)]
        self._ends = np.cumsum([len(rows) for rows in self._maps])
        self._shape, self._batch_size, self._shuffle, self._block, self._seed = (
            row.shape,
            batch_size,
            shuffle,
            max(1, block),
            seed,
        )
        self._given = 0
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0, np.int64))  # of one epoch

    def next(self) -> torch.Tensor:
        """The next batch."""
        rows = [self._row(place) for place in range(self._given, self._given + self._batch_size)]
        self._given += self._batch_size
        return torch.from_numpy(np.stack(rows).reshape(self._batch_size, *self._shape))

    def state(self) -> dict[str, Any]:
        """Where the run stands after the batches handed out so far. Fit for JSON."""
        return {
            "sample": self._given,
            "files": self._files,
            "row": list(self._shape),
            "shuffle": self._shuffle,
            "block": self._block,
            "seed": self._seed,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Goes on where ``state`` was taken."""
        mine = self.state()
        if (
            not isinstance(state, dict)
            or state.keys() != mine.keys()
            or type(state["sample"]) is not int
            or state["sample"] < 0
        ):
            raise DataError(f"{state!r:.200} is not a position of a RawReader, as state() gives it")
        wrong = next((key for key in mine if key != "sample" and state[key] != mine[key]), None)
        if wrong is not None:
            raise DataError(
                f"the saved position has {wrong} {state[wrong]!r}, this reader {mine[wrong]!r}; go on with the same "
                f"files and arguments"
            )
        self._given = state["sample"]

    def _row(self, place: int) -> np.ndarray:
        epoch, position = divmod(place, int(self._ends[-1]))
        if self._order[0] != epoch:
            self._order = epoch, self._rows_of(epoch)
        number = int(self._order[1][position])
        file = int(np.searchsorted(self._ends, number, side="right"))
        return self._maps[file][number - int(self._ends[file])]  # counted from the file's end

    def _rows_of(self, epoch: int) -> np.ndarray:
        rows = np.arange(self._ends[-1])
        if not self._shuffle:
            return rows
        blocks = np.array_split(rows, np.arange(self._block, len(rows), self._block))
        return np.concatenate([blocks[number] for number in permutation(len(blocks), self._seed, epoch)])


def _mapped(path: str, row: TensorSpec) -> np.ndarray:
    """The rows of a file, each flat."""
    dtype = row.dtype.require_numpy()
    size = row.elements * dtype.itemsize
    try:
        found = os.path.getsize(path)
        if found == 0 or found % size:
            raise DataError(
                f"{path} has {found} bytes, rows of {row.shape} {row.dtype.name} take {size} each; check shape and "
                f"dtype"
            )
        return np.memmap(path, dtype, "r").reshape(-1, row.elements)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
