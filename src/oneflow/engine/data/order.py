"""The order of samples and their randomness: pure functions of seed, epoch and counts. No files, no clocks, no hidden
state.

A run is one endless sequence of samples, numbered from 0. An order says which record each of them is; ``Draws`` gives
each its own random numbers. Neither knows of ranks or threads, so neither can depend on them.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from oneflow.engine.core.errors import ArgumentError, DataError
from oneflow.engine.data.formats import libstdcxx

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_PART_SEED = 524287  # of OneFlow's reader


def part_names(prefix: str, count: int, suffix_length: int = -1) -> list[str]:
    """``part-0``, ``part-1`` ...; with ``suffix_length`` 5 ``part-00000``. A longer number is written in full."""
    if suffix_length != -1 and suffix_length < 1:
        raise ArgumentError(f"part_name_suffix_length is -1 (no padding) or at least 1, got {suffix_length}")
    return [f"{prefix}{index:0{max(suffix_length, 1)}d}" for index in range(count)]


class Order(Protocol):
    """Which records a run reads."""

    def records(self, start: int, stop: int) -> Sequence[int]:
        """The record of each sample from number ``start`` up to ``stop``. Any place may be asked for; going on is
        cheapest."""
        ...


class Sequential:
    """The records in their order, again and again."""

    def __init__(self, count: int) -> None:
        self._count = count

    def records(self, start: int, stop: int) -> list[int]:
        return [number % self._count for number in range(start, stop)]


class Shuffled:
    """Every epoch all records once, in an order of its own; with a ``buffer``, mixed in that many places only."""

    def __init__(self, count: int, seed: int, buffer: int | None = None) -> None:
        self._count = count
        self._seed = seed
        self._buffer = count if buffer is None else max(1, min(buffer, count))
        self._epochs: dict[int, np.ndarray] = {}

    def records(self, start: int, stop: int) -> list[int]:
        found: list[int] = []
        while start < stop:
            epoch, position = divmod(start, self._count)
            taken = self._permutation(epoch)[position : position + stop - start].tolist()
            found += taken
            start += len(taken)
        return found

    def _permutation(self, epoch: int) -> np.ndarray:
        """Kept for the epochs at hand: a batch may straddle two."""
        if epoch not in self._epochs:
            self._epochs = {e: p for e, p in self._epochs.items() if e == epoch - 1}
            self._epochs[epoch] = buffered_permutation(self._count, self._buffer, self._seed, epoch)
        return self._epochs[epoch]


def permutation(count: int, seed: int, epoch: int) -> np.ndarray:
    """The numbers below ``count`` in an order that depends on seed and epoch alone.

    They are sorted by the raw bits of a counter-based generator, because numpy promises those bits for ever, but not
    what its own permutation makes of them.
    """
    bits = np.random.Philox(key=np.array([seed & _MASK, epoch], np.uint64)).random_raw(count)
    return np.argsort(bits, kind="stable")


def buffered_permutation(count: int, size: int, seed: int, epoch: int) -> np.ndarray:
    """The numbers below ``count`` as they leave a buffer of ``size``: each is replaced by the next, and the buffer is
    emptied at the end. So none comes ``size`` places early; with ``size`` at ``count`` it is ``permutation``, with 1 no
    change."""
    if size >= count:
        return permutation(count, seed, epoch)
    bits = np.random.Philox(key=np.array([seed & _MASK, epoch], np.uint64)).random_raw(count)
    slots = (bits[: count - size] % np.uint64(size)).astype(np.int64)
    # What leaves a slot is what came to it before: the number of its last use, or at first the slot's own.
    uses = np.argsort(slots, kind="stable")
    again = slots[uses[1:]] == slots[uses[:-1]]
    leaving = slots.copy()
    leaving[uses[1:][again]] = size + uses[:-1][again]
    held = np.arange(size)
    held[slots] = size + np.arange(count - size)
    return np.concatenate([leaving, held[np.argsort(bits[count - size :], kind="stable")]])


class OneFlow:
    """The order of OneFlow's reader: parts one behind the other, their order shuffled after each epoch; records mixed
    in a buffer.

    The buffer is filled first; then each record leaves its slot to the next of the stream and is never drained, so
    records cross from one epoch to the next. ``buffer`` 0 leaves it out. The buffer's content is a function of how many
    were taken, so the number of the sample is all the state there is.

    With ``world`` above 1 this is the order of one rank, which reads its own range of parts as in OneFlow; sample
    numbers then count what this rank reads.
    """

    def __init__(
        self,
        counts: Sequence[int],
        buffer: int = 0,
        shuffle_parts: bool = False,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        if world > len(counts):
            raise ArgumentError(
                f"{world} ranks cannot share {len(counts)} part files, each rank reads at least one; make more parts "
                f"or use fewer ranks"
            )
        self._counts = counts
        self._starts = [0, *itertools.accumulate(counts)]
        self._range = _balanced_range(len(counts), rank, world)
        self._part_orders = _PartOrders(len(counts), shuffle_parts, keep=64 + 32 * buffer // max(1, sum(counts)))
        self._epoch_starts = [0]
        self._same_length = None if shuffle_parts and world > 1 else self._length(0)
        self._ends: dict[int, list[int]] = {}
        self._buffer = _Buffer(buffer, seed) if buffer else None
        if not self._length(0):
            raise DataError("there is not one record in the parts that are read")

    def records(self, start: int, stop: int) -> list[int]:
        stream = self._buffer.taken(start, stop) if self._buffer else range(start, stop)
        return [self._record(place) for place in stream]

    def _record(self, place: int) -> int:
        """The record at a place of the unmixed stream."""
        epoch, place = self._within_epoch(place)
        ends = self._part_ends(epoch)
        turn = bisect.bisect_right(ends, place)
        part = self._parts(epoch)[turn]
        return self._starts[part] + place - (ends[turn] - self._counts[part])

    def _within_epoch(self, place: int) -> tuple[int, int]:
        """Ranks that read other parts in each epoch have epochs of unequal length."""
        if self._same_length is not None:
            return divmod(place, self._same_length)
        starts = self._epoch_starts
        while starts[-1] <= place:
            starts.append(starts[-1] + self._length(len(starts) - 1))
        epoch = bisect.bisect_right(starts, place) - 1
        return epoch, place - starts[epoch]

    def _length(self, epoch: int) -> int:
        return sum(self._counts[part] for part in self._parts(epoch))

    def _part_ends(self, epoch: int) -> list[int]:
        if epoch not in self._ends:
            if len(self._ends) > 16:
                self._ends.clear()
            self._ends[epoch] = list(itertools.accumulate(self._counts[part] for part in self._parts(epoch)))
        return self._ends[epoch]

    def _parts(self, epoch: int) -> list[int]:
        return self._part_orders.of(epoch)[self._range]


class _PartOrders:
    """The order in which each epoch reads the parts. Each is a shuffle of the one before; the latest ``keep`` are at
    hand."""

    def __init__(self, parts: int, shuffle: bool, keep: int) -> None:
        self._first = list(range(parts))
        self._shuffle = shuffle
        self._keep = keep
        self._known = {0: self._first}

    def of(self, epoch: int) -> list[int]:
        """The first epoch always reads the parts by name."""
        if not self._shuffle:
            return self._first
        if epoch not in self._known:
            self._extend(epoch)
        return self._known[epoch]

    def _extend(self, epoch: int) -> None:
        if epoch < max(self._known):
            self._known = {0: self._first}
        for e in range(max(self._known) + 1, epoch + 1):
            parts = list(self._known[e - 1])
            libstdcxx.shuffle(parts, libstdcxx.mersenne_words(_PART_SEED + e))
            self._known[e] = parts
            self._known.pop(e - self._keep, None)


def _balanced_range(count: int, rank: int, world: int) -> slice:
    """A rank's contiguous share; the first ranks have one more where it does not come out even."""
    size, more = divmod(count, world)
    start = rank * size + min(rank, more)
    return slice(start, start + size + (rank < more))


class _Buffer:
    """Places of a stream as they leave a shuffle buffer."""

    def __init__(self, size: int, seed: int) -> None:
        self._size = size
        self._seed = seed
        self._rewind()

    def _rewind(self) -> None:
        self._slots = libstdcxx.Slots(self._size, self._seed)
        self._held = np.arange(self._size)
        self._taken = 0

    def taken(self, start: int, stop: int) -> list[int]:
        """The places that leave as number ``start`` to ``stop``."""
        if start < self._taken:
            self._rewind()
        while self._taken < start:
            self._skip(min(start - self._taken, 1 << 20))
        found = []
        held = self._held
        for slot in self._slots.take(stop - start).tolist():
            found.append(int(held[slot]))
            held[slot] = self._size + self._taken
            self._taken += 1
        return found

    def _skip(self, count: int) -> None:
        """As if ``count`` had been taken: a slot holds what came to it last."""
        slots = self._slots.take(count)
        self._held[slots] = self._size + self._taken + np.arange(count)
        self._taken += count


class Draws:
    """The random numbers of one sample: a function of seed, epoch and the sample's position in the epoch."""

    __slots__ = ("_key",)

    def __init__(self, seed: int, epoch: int, position: int) -> None:
        self._key = (seed, epoch, position)

    def stream(self, salt: int = 0) -> Stream:
        """Numbers for one use; another ``salt`` gives numbers that have nothing to do with these."""
        bits = 0
        for part in (*self._key, salt):
            bits = _mix(bits + part + _GOLDEN & _MASK)
        return Stream(bits)


class Stream:
    """Uniform numbers in [0, 1), one per call. SplitMix64: written out, because an order must not change with a
    library's version."""

    __slots__ = ("_bits",)

    def __init__(self, bits: int) -> None:
        self._bits = bits

    def __call__(self) -> float:
        self._bits = self._bits + _GOLDEN & _MASK
        return (_mix(self._bits) >> 11) * 2.0**-53


def _mix(bits: int) -> int:
    """The finaliser of SplitMix64."""
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB & _MASK
    return bits ^ bits >> 31
