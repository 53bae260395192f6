"""The random order of OneFlow's record reader, number for number: three generators of the C++ library it was built
with.

    parts of an epoch    ``std::shuffle`` with ``std::mt19937``
    slots of the buffer  ``std::uniform_int_distribution`` over ``std::minstd_rand0``, seeded by a ``std::seed_seq`` of one number

The rules are those of libstdc++ before version 11, which drew a number below a bound by division; later versions
differ.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableSequence
from typing import Any

import numpy as np

_M32 = (1 << 32) - 1
_MERSENNE_RANGE = _M32
_MINSTD_MODULUS = (1 << 31) - 1
_MINSTD_MULTIPLIER = 16807
_MINSTD_RANGE = _MINSTD_MODULUS - 2  # from 1 to modulus - 1
_BLOCK = 1 << 14


def mersenne_words(seed: int) -> Iterator[int]:
    """What ``std::mt19937(seed)`` gives. numpy's RandomState is seeded by the same rule and is frozen for good."""
    generator = np.random.RandomState(seed & _M32)
    while True:
        yield from np.frombuffer(generator.bytes(4 * 256), "<u4").tolist()


def shuffle(items: MutableSequence[Any], words: Iterator[int]) -> None:
    """``std::shuffle`` in place; two swaps share a random number while their product of choices fits into one."""
    count = len(items)
    if count < 2:
        return
    if _MERSENNE_RANGE // count < count:
        for i in range(1, count):
            _swap(items, i, _below(i + 1, words))
        return
    start = 1
    if count % 2 == 0:
        _swap(items, 1, _below(2, words))
        start = 2
    for i in range(start, count, 2):
        first, second = divmod(_below((i + 1) * (i + 2), words), i + 2)
        _swap(items, i, first)
        _swap(items, i + 1, second)


def _below(bound: int, words: Iterator[int]) -> int:
    scaling = _MERSENNE_RANGE // bound
    return next(word for word in words if word < bound * scaling) // scaling


def _swap(items: MutableSequence[Any], i: int, j: int) -> None:
    items[i], items[j] = items[j], items[i]


def seed_sequence(seed: int, count: int) -> list[int]:
    """The first ``count`` 32-bit words of ``std::seed_seq{seed}``, by the algorithm of the C++ standard."""
    entropy = [seed & _M32]
    words = [0x8B8B8B8B] * count
    size = len(entropy)
    t = 11 if count >= 623 else 7 if count >= 68 else 5 if count >= 39 else 3 if count >= 7 else (count - 1) // 2
    p = (count - t) // 2
    q = p + t
    rounds = max(size + 1, count)
    for k in range(rounds):
        mixed = _fold(words[k % count] ^ words[(k + p) % count] ^ words[(k - 1) % count])
        r1 = 1664525 * mixed & _M32
        r2 = r1 + (size if k == 0 else k % count + (entropy[k - 1] if k <= size else 0)) & _M32
        words[(k + p) % count] = words[(k + p) % count] + r1 & _M32
        words[(k + q) % count] = words[(k + q) % count] + r2 & _M32
        words[k % count] = r2
    for k in range(rounds, rounds + count):
        mixed = _fold(words[k % count] + words[(k + p) % count] + words[(k - 1) % count] & _M32)
        r3 = 1566083941 * mixed & _M32
        r4 = r3 - k % count & _M32
        words[(k + p) % count] ^= r3
        words[(k + q) % count] ^= r4
        words[k % count] = r4
    return words


def _fold(word: int) -> int:
    return word ^ word >> 27


class Slots:
    """Numbers from 0 to ``bound - 1`` from ``std::default_random_engine``, many at a time.

    The generator is multiplicative, so a whole block follows from its last number and the powers of the multiplier.
    """

    def __init__(self, bound: int, seed: int) -> None:
        self._scaling = np.uint64(_MINSTD_RANGE // bound)
        self._past = np.uint64(bound) * self._scaling
        self._last = np.uint64(seed_sequence(seed, 4)[3] % _MINSTD_MODULUS or 1)
        self._powers = _powers(_BLOCK)
        self._ready = np.empty(0, np.int64)

    def take(self, count: int) -> np.ndarray:
        """The next ``count`` numbers."""
        while len(self._ready) < count:
            self._ready = np.concatenate([self._ready, self._block()])
        taken, self._ready = self._ready[:count], self._ready[count:]
        return taken

    def _block(self) -> np.ndarray:
        block = self._last * self._powers % np.uint64(_MINSTD_MODULUS)
        self._last = block[-1]
        found = block - np.uint64(1)
        return (found[found < self._past] // self._scaling).astype(np.int64)


def _powers(count: int) -> np.ndarray:
    """The multiplier to the power of 1, 2 ... ``count``, modulo the modulus."""
    powers = np.array([_MINSTD_MULTIPLIER], np.uint64)
    while len(powers) < count:
        powers = np.concatenate([powers, powers * powers[-1] % np.uint64(_MINSTD_MODULUS)])
    return powers[:count]
