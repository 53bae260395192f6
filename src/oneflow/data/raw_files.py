"""Files that hold nothing but numbers: rows of one shape and dtype, one behind the other."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import torch

from oneflow.core.errors import DataError
from oneflow.core.spec import TensorSpec
from oneflow.data.order import permutation


class RawRows:
    """Batches of the rows of ``files``, without end. With ``shuffle`` every epoch has a random order of its own, in which blocks of
    ``block`` neighbours stay together."""

    def __init__(
        self, files: Sequence[str | os.PathLike[str]], row: TensorSpec, batch_size: int, shuffle: bool, block: int, seed: int
    ) -> None:
        self._maps = [_mapped(os.fspath(path), row) for path in files]
        self._ends = np.cumsum([len(rows) for rows in self._maps])
        self._shape, self._batch_size, self._shuffle, self._block, self._seed = row.shape, batch_size, shuffle, max(1, block), seed
        self._given = 0
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0, np.int64))  # of one epoch

    def next(self) -> torch.Tensor:
        """The next batch."""
        rows = [self._row(place) for place in range(self._given, self._given + self._batch_size)]
        self._given += self._batch_size
        return torch.from_numpy(np.stack(rows).reshape(self._batch_size, *self._shape))

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
            raise DataError(f"{path} has {found} bytes, rows of {row.shape} {row.dtype.name} take {size} each; check shape and dtype")
        return np.memmap(path, dtype, "r").reshape(-1, row.elements)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
