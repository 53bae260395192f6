"""The order of records: pure functions of seed, epoch and counts. No files, no clocks, no hidden state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from oneflow.core.errors import ArgumentError

T = TypeVar("T")

_MASK = (1 << 64) - 1
_STREAM_OF_PARTS, _STREAM_OF_SLOTS = 1, 2


def part_names(prefix: str, count: int, suffix_length: int = -1) -> list[str]:
    """``part-0``, ``part-1`` ...; with ``suffix_length`` 5 ``part-00000``. A longer number is written in full."""
    if suffix_length != -1 and suffix_length < 1:
        raise ArgumentError(f"part_name_suffix_length is -1 (no padding) or at least 1, got {suffix_length}")
    return [f"{prefix}{index:0{max(suffix_length, 1)}d}" for index in range(count)]


def random_below(bound: int, *key: int) -> int:
    """A number from 0 to ``bound - 1`` that depends on the key alone.

    It is a hash (the finaliser of SplitMix64 over the key), not a generator with a state, so that a run can be resumed
    anywhere by its counters. Written out here because an order must not change with a library's version.
    """
    bits = 0
    for part in key:
        bits = (bits + part + 0x9E3779B97F4A7C15) & _MASK
        bits = ((bits ^ bits >> 30) * 0xBF58476D1CE4E5B9) & _MASK
        bits = ((bits ^ bits >> 27) * 0x94D049BB133111EB) & _MASK
        bits ^= bits >> 31
    return bits * bound >> 64


def part_order(parts: int, epoch: int, shuffle: bool, seed: int = 0) -> list[int]:
    """The parts in the order in which an epoch reads them. The first epoch always reads them by name."""
    order = list(range(parts))
    if shuffle and epoch > 0:
        for i in range(parts - 1, 0, -1):
            j = random_below(i + 1, _STREAM_OF_PARTS, seed, epoch, i)
            order[i], order[j] = order[j], order[i]
    return order


def cycle(parts: int, shuffle: bool = False, seed: int = 0, epoch: int = 0, turn: int = 0) -> Iterator[tuple[int, int, int]]:
    """(epoch, turn, part) without end, from the given place on; ``turn`` counts the parts within an epoch."""
    while True:
        order = part_order(parts, epoch, shuffle, seed)
        for at in range(turn, parts):
            yield epoch, at, order[at]
        epoch, turn = epoch + 1, 0


class ShuffleBuffer(Generic[T]):
    """Mixes an endless stream: it is filled once, then each item taken leaves its slot to the next of the stream.

    ``held`` and ``drawn`` are all of its state.
    """

    def __init__(self, size: int, seed: int) -> None:
        self.size = size
        self.seed = seed
        self.held: list[T] = []
        self.drawn = 0

    def take(self, stream: Iterator[T]) -> T:
        while len(self.held) < self.size:
            self.held.append(next(stream))
        slot = random_below(self.size, _STREAM_OF_SLOTS, self.seed, self.drawn)
        item, self.held[slot] = self.held[slot], next(stream)
        self.drawn += 1
        return item
