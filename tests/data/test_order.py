"""The order of samples and their random numbers as pure functions."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import numpy as np
import pytest

from oneflow.engine.core.errors import ArgumentError, DataError
from oneflow.engine.data.formats import libstdcxx
from oneflow.engine.data.order import (
    Draws,
    OneFlow,
    Sequential,
    Shuffled,
    buffered_permutation,
    part_names,
    permutation,
)


def test_part_names():
    assert part_names("part-", 3) == ["part-0", "part-1", "part-2"]
    assert part_names("part-", 2, 5) == ["part-00000", "part-00001"]
    assert part_names("p", 12, 1)[-2:] == ["p10", "p11"]
    with pytest.raises(ArgumentError, match="suffix_length"):
        part_names("part-", 2, 0)


# ------------------------------------------------------------------ the C++ library's numbers, printed by a C++ program


def test_mersenne_twister():
    assert list(islice(libstdcxx.mersenne_words(524288), 5)) == [
        441918132,
        2323828421,
        4035452903,
        2659908906,
        3762218829,
    ]


def test_seed_sequence():
    assert libstdcxx.seed_sequence(12345, 4) == [2502221338, 1779028209, 334999418, 3725161141]
    forty = libstdcxx.seed_sequence(7, 40)
    assert [forty[0], forty[20], forty[39]] == [2598027323, 1081949946, 2545889621]


SLOTS = {
    0: ([961, 868, 212, 105, 324, 444, 951, 822], 450526),
    1: ([626, 814, 61, 246, 419, 276, 430, 728], 281471),
    12345: ([498, 987, 177, 773, 5, 383, 220, 280], 9675),
    (1 << 40) + 3: ([520, 28, 851, 71, 128, 60, 31, 887], 951820),
}


@pytest.mark.parametrize("seed", SLOTS)
def test_slots_of_a_buffer(seed):
    """The first eight numbers below 1024, and a checksum of the hundred thousand that follow."""
    slots = libstdcxx.Slots(1024, seed)
    first, expected = SLOTS[seed]
    assert slots.take(8).tolist() == first
    checksum = 0
    for slot in slots.take(100_000).tolist():
        checksum = checksum * 31 % 1_000_003 + slot
    assert checksum == expected


@pytest.mark.parametrize(("count", "checksum"), [(2, 31), (3, 1923), (7, 810345), (8, 119814), (256, 720864)])
def test_shuffle(count, checksum):
    items = list(range(count))
    libstdcxx.shuffle(items, libstdcxx.mersenne_words(524288))
    found = 0
    for item in items:
        found = (found * 31 + item) % 1_000_003
    assert (found, sorted(items)) == (checksum, list(range(count)))


def test_shuffle_of_more_than_a_word_holds_pairs_of():
    items = list(range(70_000))
    libstdcxx.shuffle(items, libstdcxx.mersenne_words(1))
    assert sorted(items) == list(range(70_000))


# ------------------------------------------------------------------ orders


def test_sequential():
    assert Sequential(3).records(1, 8) == [1, 2, 0, 1, 2, 0, 1]


def test_shuffled_gives_every_record_once_an_epoch_and_straddles_epochs():
    order = Shuffled(10, seed=3)
    epochs = [order.records(e * 10, e * 10 + 10) for e in range(20)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 20
    assert Shuffled(10, seed=3).records(5, 47) == [r for epoch in epochs for r in epoch][5:47]
    assert Shuffled(10, seed=4).records(0, 10) != epochs[0]


def test_the_permutation_is_fixed_for_ever():
    """A saved position is worth nothing once these change."""
    assert permutation(10, 0, 0).tolist() == [0, 2, 9, 1, 8, 5, 4, 3, 6, 7]
    assert permutation(6, -1, 7).tolist() == [3, 0, 4, 1, 5, 2]


def test_all_orders_of_three_are_equally_likely():
    found = Counter(tuple(permutation(3, 0, epoch).tolist()) for epoch in range(6000))
    assert len(found) == 6
    assert all(abs(n - 1000) < 150 for n in found.values())


def emptied(count, size, slots, last):
    """A buffer written out: each draw replaces what it takes by the next, and what is left comes in the order
    ``last``."""
    held, following, left = list(range(size)), size, []
    for slot in slots:
        left.append(held[slot])
        held[slot] = following
        following += 1
    return left + [held[i] for i in last]


@pytest.mark.parametrize(("count", "size"), [(50, 7), (50, 1), (50, 49), (8, 3)])
def test_a_buffer_is_mixed_and_emptied_in_every_epoch(count, size):
    bits = np.random.Philox(key=np.array([5, 2], np.uint64)).random_raw(count)
    slots = [int(b) % size for b in bits[: count - size]]
    last = np.argsort(bits[count - size :], kind="stable")
    found = buffered_permutation(count, size, 5, 2)
    assert found.tolist() == emptied(count, size, slots, last)
    assert sorted(found) == list(range(count))
    assert all(record - place < size for place, record in enumerate(found))


def test_a_buffer_of_all_records_is_a_shuffle_of_them():
    assert Shuffled(20, 3, buffer=20).records(0, 60) == Shuffled(20, 3).records(0, 60)
    assert Shuffled(20, 3, buffer=1).records(0, 40) == [*range(20), *range(20)]


def test_oneflow_without_shuffle_is_sequential():
    assert OneFlow([2, 0, 3]).records(0, 12) == Sequential(5).records(0, 12)


def test_oneflow_shuffles_parts_after_the_first_epoch():
    """Written out: each epoch shuffles the order of the epoch before with a generator seeded by 524287 + epoch."""
    starts, counts, parts = [0, 5, 6], [5, 1, 4], [0, 1, 2]
    expected = []
    for epoch in range(6):
        if epoch:
            libstdcxx.shuffle(parts, libstdcxx.mersenne_words(524287 + epoch))
        expected += [starts[p] + k for p in parts for k in range(counts[p])]
    assert OneFlow(counts, shuffle_parts=True).records(0, 60) == expected
    assert OneFlow(counts, shuffle_parts=True).records(23, 60) == expected[23:]


def by_buffer(counts, size, seed, count):
    """The buffer step by step: filled first, then each item taken leaves its slot to the next."""
    stream = iter(OneFlow(counts, shuffle_parts=True).records(0, count + size))
    held = [next(stream) for _ in range(size)]
    taken = []
    for slot in libstdcxx.Slots(size, seed).take(count).tolist():
        taken.append(held[slot])
        held[slot] = next(stream)
    return taken


@pytest.mark.parametrize("size", [1, 6, 50])
def test_oneflow_mixes_in_a_buffer(size):
    expected = by_buffer([5, 1, 4], size, 9, 300)
    order = OneFlow([5, 1, 4], size, True, 9)
    assert order.records(0, 120) + order.records(120, 300) == expected
    assert OneFlow([5, 1, 4], size, True, 9).records(210, 300) == expected[210:]  # far ahead at once
    assert order.records(3, 17) == expected[3:17]  # and back


def test_a_position_millions_of_samples_on_is_found_at_once():
    order = OneFlow([100] * 8, 1024, True, 1)
    late = order.records(5_000_000, 5_000_010)
    assert order.records(5_000_005, 5_000_010) == late[5:]


def test_ranks_with_parts_of_their_own():
    """As OneFlow shares files: contiguous ranges, the first ranks one more."""
    orders = [OneFlow([2, 2, 2, 2, 2], rank=rank, world=2) for rank in range(2)]
    assert [order.records(0, 8) for order in orders] == [[0, 1, 2, 3, 4, 5, 0, 1], [6, 7, 8, 9, 6, 7, 8, 9]]
    shuffled = [OneFlow([1, 2, 3], shuffle_parts=True, rank=rank, world=3) for rank in range(3)]
    whole = OneFlow([1, 2, 3], shuffle_parts=True)
    assert sorted(r for order in shuffled for r in order.records(0, 1)) == [0, 1, 3]
    assert [len(set(order.records(0, 60))) for order in shuffled] == [6, 6, 6]
    assert set(whole.records(0, 6)) == set(range(6))
    with pytest.raises(ArgumentError, match="4 ranks cannot share 3 part files"):
        OneFlow([1, 2, 3], world=4)
    with pytest.raises(DataError, match="not one record"):
        OneFlow([0, 0])


# ------------------------------------------------------------------ random numbers


def test_draws_are_fixed_for_ever():
    assert [round(Draws(0, 0, 0).stream()(), 6), round(Draws(1, 2, 3).stream(4)(), 6)] == [0.47141, 0.962038]


def test_draws_are_even_and_depend_on_every_part_of_the_key():
    values = np.array(
        [
            Draws(0, epoch, position).stream(salt)()
            for epoch in range(10)
            for position in range(100)
            for salt in range(10)
        ]
    )
    assert len(set(values.tolist())) == 10_000
    assert np.histogram(values, 10, (0, 1))[0].min() > 850
    stream = Draws(5, 0, 0).stream()
    assert 0.47 < np.mean([stream() for _ in range(10_000)]) < 0.53
    assert Draws(5, 0, 0).stream()() != Draws(6, 0, 0).stream()()
