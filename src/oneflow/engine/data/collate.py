"""Batches in the making: memory for all rows is there before the first sample is read, and each writes its own."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from oneflow.engine.core.errors import ArgumentError, DataError
from oneflow.engine.data.decode import Decoder, MissingFeature
from oneflow.engine.data.order import Draws


def _holders(arrays: list[np.ndarray], index: int) -> int:
    return sys.getrefcount(arrays[index])


_ALONE = _holders([np.empty(0)], 0)  # what it says of an array that only the list holds


class Memory:
    """Arrays for batches. One is used again when nobody holds it, or any view of it, any more.

    Fresh memory has to be mapped page by page, which for a batch of pictures takes as long as several pictures. Where a
    GPU is, ``pinned`` memory comes from torch, which keeps its own store.
    """

    def __init__(self, pinned: bool, most: int) -> None:
        self._pinned = pinned
        self._most = most
        self._arrays: list[np.ndarray] = []
        self._lock = threading.Lock()

    def tensor(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> torch.Tensor:
        if self._pinned:
            return torch.empty(shape, dtype=torch.from_numpy(np.empty(0, dtype)).dtype, pin_memory=True)
        with self._lock:
            return torch.from_numpy(self._array(shape, dtype))

    def _array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        for i in range(len(self._arrays)):
            if (self._arrays[i].shape, self._arrays[i].dtype) == (shape, dtype) and _holders(self._arrays, i) == _ALONE:
                return self._arrays[i]
        self._arrays.append(np.empty(shape, dtype))
        del self._arrays[: -self._most]
        return self._arrays[-1]


class DecodedBatch:
    """Rows of known shape, one tensor a decoder."""

    def __init__(self, decoders: Sequence[Decoder], keys: frozenset[str], rows: int, memory: Memory) -> None:
        self._decoders = decoders
        self._keys = keys
        self.tensors = [memory.tensor((rows, *d.row.shape), d.row.dtype.require_numpy()) for d in decoders]
        self._arrays = [tensor.numpy() for tensor in self.tensors]

    def write(self, row: int, record: Any, draws: Draws) -> None:
        if not hasattr(record, "pick"):
            raise ArgumentError(
                f"decoders take records, the source has {record!r:.200}; give a function of (sample, draws) instead"
            )
        features = record.pick(self._keys)
        try:
            for decoder, array in zip(self._decoders, self._arrays):
                decoder.write(features, array[row, ...], draws)
        except MissingFeature as error:
            raise DataError(f"{record.where}: {error}; the record has {sorted(record.features)}") from None
        except DataError as error:
            raise DataError(f"{record.where}: {error}") from None


def _as_array(leaf: Any) -> np.ndarray:
    if isinstance(leaf, torch.Tensor):
        leaf = leaf.detach()
        if leaf.dtype is torch.bfloat16:
            raise ArgumentError("a sample of bfloat16 cannot be stacked; make it float32 and cast the batch")
    array = np.asarray(leaf)
    if array.dtype.kind not in "biufc":
        raise ArgumentError(f"a sample is made of arrays of numbers, got {leaf!r:.200}")
    return array


class StackedBatch:
    """Rows that a function makes; the first one made tells their structure and shapes."""

    def __init__(self, function: Callable[[Any, Draws], Any], rows: int, memory: Memory) -> None:
        self._function = function
        self._rows = rows
        self._memory = memory
        self._lock = threading.Lock()
        self._structure: Any = None
        self.tensors: list[torch.Tensor] = []

    def write(self, row: int, sample: Any, draws: Draws) -> None:
        try:
            leaves, structure = tree_flatten(self._function(sample, draws))
        except DataError as error:
            place = getattr(sample, "where", None)
            if place is None or str(error).startswith(place):
                raise
            raise DataError(f"{place}: {error}") from None
        arrays = [_as_array(leaf) for leaf in leaves]
        with self._lock:
            if self._structure is None:
                self._allocate(arrays, structure)
        self._check(arrays, structure)
        for tensor, array in zip(self.tensors, arrays):
            tensor.numpy()[row, ...] = array

    def _allocate(self, arrays: list[np.ndarray], structure: Any) -> None:
        self.tensors = [self._memory.tensor((self._rows, *a.shape), a.dtype) for a in arrays]
        self._structure = structure

    def _check(self, arrays: list[np.ndarray], structure: Any) -> None:
        got = [(a.shape, str(a.dtype)) for a in arrays]
        expected = [(tuple(t.shape[1:]), str(t.numpy().dtype)) for t in self.tensors]
        if structure != self._structure or got != expected:
            raise ArgumentError(
                f"samples of one batch have one structure, shape and dtype; one is {expected}, another {got}"
            )

    def packed(self) -> Any:
        return tree_unflatten(self.tensors, self._structure)


@dataclass(frozen=True)
class Listed:
    """Makes a batch a list: of each sample what ``function(sample, draws)`` gives, whatever that is."""

    function: Callable[[Any, Draws], Any]


class ListedBatch:
    """Rows that a function makes, kept as they are."""

    def __init__(self, function: Callable[[Any, Draws], Any], rows: int) -> None:
        self._function = function
        self.rows: list[Any] = [None] * rows

    def write(self, row: int, sample: Any, draws: Draws) -> None:
        self.rows[row] = self._function(sample, draws)


Batch = DecodedBatch | StackedBatch | ListedBatch


class Collation:
    """How samples become batches: by decoders (a mapping, a sequence, or one), by a function of a sample and its draws,
    or as a list."""

    def __init__(self, decoders: Any, pinned: bool, most_batches: int) -> None:
        self._function: Callable[[Any, Draws], Any] | None = None
        self._listed = isinstance(decoders, Listed)
        self._list: list[Decoder] = []
        self._pack: Callable[[list[torch.Tensor]], Any]
        self._read(decoders)
        self._keys = frozenset(key for decoder in self._list for key in decoder.keys)
        self._memory = Memory(pinned, max(4, len(self._list)) * (most_batches + 2))

    def _read(self, decoders: Any) -> None:
        if isinstance(decoders, Mapping):
            names = list(decoders)
            self._list, self._pack = list(decoders.values()), lambda tensors: dict(zip(names, tensors))
        elif isinstance(decoders, (list, tuple)):
            self._list, self._pack = list(decoders), tuple
        elif isinstance(decoders, Decoder):
            self._list, self._pack = [decoders], lambda tensors: tensors[0]
        elif isinstance(decoders, Listed):
            self._function = decoders.function
        elif callable(decoders):
            self._function = decoders
        if self._function is None and not (self._list and all(isinstance(d, Decoder) for d in self._list)):
            raise ArgumentError(
                "decoders is a dict or list of decoders such as oneflow.data.RawDecoder and oneflow.data.ImageDecoder, "
                "one of them, "
                f"or a function of (sample, draws); got {decoders!r}"
            )

    def batch(self, rows: int) -> Batch:
        if self._function is not None:
            return (
                ListedBatch(self._function, rows) if self._listed else StackedBatch(self._function, rows, self._memory)
            )
        return DecodedBatch(self._list, self._keys, rows, self._memory)

    def packed(self, batch: Batch) -> Any:
        if isinstance(batch, ListedBatch):
            return batch.rows
        return batch.packed() if isinstance(batch, StackedBatch) else self._pack(batch.tensors)
