"""Token files of Megatron's kind, ``<prefix>.idx`` and ``<prefix>.bin``, as memory maps; and samples of one length cut
from them."""

from __future__ import annotations

import functools
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from oneflow.engine.core.errors import ArgumentError, DataError
from oneflow.engine.data.order import permutation

_MAGIC = b"MMIDIDX\x00\x00"
_HEAD = struct.Struct("<QBQQ")  # version, dtype code, sequences, entries of the document index
DTYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f4", 7: "<f8", 8: "<u2"}


@dataclass(frozen=True)
class IndexedTokens:
    """``tokens`` of all documents, one behind the other; document d is the ``lengths[d]`` of them from ``starts[d]``
    on."""

    prefix: str
    tokens: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray


def open_indexed(prefix: str | os.PathLike[str]) -> IndexedTokens:
    """The documents of ``<prefix>.bin``; files that do not fit each other are a ``DataError``."""
    prefix = os.fspath(prefix)
    dtype, sizes, pointers, documents = read_index(f"{prefix}.idx")
    ends = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    if len(sizes) and not np.array_equal(pointers, ends[:-1] * dtype.itemsize):
        raise DataError(f"{prefix}.idx: the sequences do not lie one behind the other; make the files again")
    if len(documents) < 1 or documents[0] != 0 or documents[-1] != len(sizes) or (np.diff(documents) < 0).any():
        raise DataError(
            f"{prefix}.idx: the document index runs from 0 to the number of sequences, {len(sizes)}; make the files "
            f"again"
        )
    tokens = mapped(f"{prefix}.bin", dtype)
    if len(tokens) != ends[-1]:
        raise DataError(
            f"{prefix}.bin has {len(tokens)} tokens, its index {ends[-1]}; the two files do not belong together, or "
            f"one was cut short"
        )
    return IndexedTokens(prefix, tokens, ends[documents[:-1]], np.diff(ends[documents]))


def read_index(path: str) -> tuple[np.dtype[Any], np.ndarray, np.ndarray, np.ndarray]:
    """What an ``.idx`` file holds: the dtype of tokens, sizes and byte offsets of sequences, and the document index. A
    damaged one is a ``DataError``."""
    head = len(_MAGIC) + _HEAD.size
    data = mapped(path, np.dtype(np.uint8))
    if len(data) < head or data[: len(_MAGIC)].tobytes() != _MAGIC:
        raise DataError(f"{path} is not an index of the memory-mapped kind: it does not begin with {_MAGIC!r}")
    version, code, sequences, entries = _HEAD.unpack(data[len(_MAGIC) : head].tobytes())
    if version != 1 or code not in DTYPES:
        raise DataError(
            f"{path} has version {version} and dtype code {code}; version 1 and the codes {sorted(DTYPES)} can be read"
        )
    if len(data) != head + 12 * sequences + 8 * entries:
        raise DataError(
            f"{path} has {len(data)} bytes, {sequences} sequences and {entries} document entries take "
            f"{head + 12 * sequences + 8 * entries}"
        )
    cuts = head + 4 * sequences, head + 12 * sequences
    parts = data[head : cuts[0]].view("<i4"), data[cuts[0] : cuts[1]].view("<i8"), data[cuts[1] :].view("<i8")
    return np.dtype(DTYPES[code]), *parts


def write_index(
    file: IO[bytes], dtype: np.dtype[Any], sizes: Sequence[int] | np.ndarray, documents: Sequence[int] | np.ndarray
) -> None:
    """Writes the ``.idx`` of sequences of these sizes that lie one behind the other."""
    code = next(code for code, known in DTYPES.items() if np.dtype(known) == dtype)
    lengths = np.asarray(sizes, "<i4")
    ends = np.cumsum(lengths, dtype="<i8") * dtype.itemsize
    file.write(_MAGIC + _HEAD.pack(1, code, len(lengths), len(documents)))
    for part in (lengths, np.concatenate([[0], ends[:-1]])[: len(lengths)], np.asarray(documents)):
        file.write(part.astype("<i4" if part is lengths else "<i8").tobytes())


def mapped(path: str, dtype: np.dtype[Any]) -> np.ndarray:
    """A file as one read-only array."""
    try:
        size = os.path.getsize(path)
        if size % dtype.itemsize:
            raise DataError(
                f"{path} has {size} bytes, which are no whole number of {dtype.itemsize}-byte tokens; it was cut short"
            )
        return np.memmap(path, dtype, "r") if size else np.empty(0, dtype)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None


def split_documents(count: int, sizes: tuple[float, ...], index: int) -> range:
    """The documents of one split, of ``sizes`` that are shares of the whole."""
    if not 0 <= index < len(sizes) or min(sizes) < 0 or sum(sizes) <= 0:
        raise ArgumentError(
            f"split_sizes are numbers of at least 0, not all 0, and split_index is one of them; got {sizes} and "
            f"{index!r}"
        )
    ends = [0, *(round(count * share) for share in np.cumsum(sizes) / sum(sizes))]
    return range(ends[index], ends[index + 1])


class TokenSamples:
    """``count`` samples of ``length + 1`` tokens, each beginning with the last token of the one before.

    The documents stand one behind the other, in every epoch in an order of its own if ``shuffle``, and samples run on
    from one to the next.
    """

    def __init__(
        self, source: IndexedTokens, documents: range, length: int, count: int, shuffle: bool, seed: int
    ) -> None:
        self._source, self._documents, self._length, self._count = (
            source,
            np.arange(documents.start, documents.stop),
            length,
            count,
        )
        self._shuffle, self._seed = shuffle, seed
        self._tokens = int(source.lengths[documents.start : documents.stop].sum())
        if self._tokens == 0:
            raise DataError(f"{source.prefix}: documents {documents.start} to {documents.stop} have no tokens")
        self._epoch = functools.lru_cache(maxsize=4)(self._order)

    def __getstate__(self) -> dict[str, Any]:
        """The maps are opened anew where it is unpickled."""
        return {key: value for key, value in vars(self).items() if key not in ("_epoch", "_source")} | {
            "prefix": self._source.prefix
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._source = open_indexed(state.pop("prefix"))
        vars(self).update(state)
        self._epoch = functools.lru_cache(maxsize=4)(self._order)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> np.ndarray:
        first, last = number * self._length, (number + 1) * self._length + 1
        parts = []
        while first < last:
            part = self._run(first, last - first)
            parts.append(part)
            first += len(part)
        return np.concatenate(parts)

    def _run(self, place: int, most: int) -> np.ndarray:
        """Tokens from a place of the endless row on, up to the end of the document there."""
        epoch, offset = divmod(place, self._tokens)
        order, ends = self._epoch(epoch)
        at = int(np.searchsorted(ends, offset, side="right"))
        left = int(ends[at]) - offset
        start = int(self._source.starts[order[at]] + self._source.lengths[order[at]]) - left
        return self._source.tokens[start : start + min(left, most)]

    def _order(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The documents of an epoch, and where each ends."""
        order = (
            self._documents[permutation(len(self._documents), self._seed, epoch)] if self._shuffle else self._documents
        )
        return order, np.cumsum(self._source.lengths[order])

    def fingerprint(self) -> dict[str, Any]:
        """What tells these samples from others; fit for JSON."""
        return {
            "tokens": len(self._source.tokens),
            "documents": len(self._documents),
            "length": self._length,
            "shuffle": self._shuffle,
        }

    def __repr__(self) -> str:
        return f"<{self._count} samples of {self._length + 1} tokens from {self._source.prefix}>"
