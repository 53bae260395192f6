"""The order of parts and records as pure functions."""

from collections import Counter
from itertools import count, islice

import pytest

from oneflow.core.errors import ArgumentError
from oneflow.data.order import ShuffleBuffer, cycle, part_names, part_order, random_below

FIXED = [98, 1, 602, 45]  # a saved position is worth nothing once these change


def test_part_names():
    assert part_names("part-", 3) == ["part-0", "part-1", "part-2"]
    assert part_names("part-", 2, 5) == ["part-00000", "part-00001"]
    assert part_names("p", 12, 1)[-2:] == ["p10", "p11"]
    with pytest.raises(ArgumentError, match="suffix_length"):
        part_names("part-", 2, 0)


def test_cycle_without_shuffle():
    assert list(islice(cycle(2), 5)) == [(0, 0, 0), (0, 1, 1), (1, 0, 0), (1, 1, 1), (2, 0, 0)]


def test_cycle_goes_on_from_any_place():
    whole = list(islice(cycle(5, True, 3), 40))
    for start in (0, 4, 5, 17):
        epoch, turn, _ = whole[start]
        assert list(islice(cycle(5, True, 3, epoch, turn), 40 - start)) == whole[start:]


def test_parts_are_shuffled_after_the_first_epoch():
    assert part_order(8, 0, True) == list(range(8))
    orders = [part_order(8, epoch, True) for epoch in range(1, 20)]
    assert all(sorted(order) == list(range(8)) for order in orders)
    assert len({tuple(order) for order in orders}) > 15
    assert orders == [part_order(8, epoch, True) for epoch in range(1, 20)]
    assert orders != [part_order(8, epoch, True, seed=1) for epoch in range(1, 20)]


def test_random_numbers_are_fixed_and_even():
    assert [random_below(1000, 2, 0, n) for n in range(4)] == FIXED
    found = Counter(random_below(10, 7, n) for n in range(20000))
    assert set(found) == set(range(10))
    assert max(abs(n - 2000) for n in found.values()) < 200


def test_all_orders_of_three_parts_are_equally_likely():
    found = Counter(tuple(part_order(3, epoch, True)) for epoch in range(1, 6001))
    assert len(found) == 6
    assert all(abs(n - 1000) < 150 for n in found.values())


def shuffled(size, seed, n):
    buffer = ShuffleBuffer(size, seed)
    stream = count()
    return [buffer.take(stream) for _ in range(n)]


def test_shuffle_buffer_is_deterministic_and_loses_nothing():
    first = shuffled(16, 5, 400)
    assert first == shuffled(16, 5, 400)
    assert first != shuffled(16, 6, 400)
    assert len(set(first)) == 400
    # an item leaves after it came in: the i-th taken is among the first 16 + i
    assert all(item < 16 + i for i, item in enumerate(first))
    buffer, stream = ShuffleBuffer(16, 5), count()
    taken = [buffer.take(stream) for _ in range(400)]
    assert sorted(taken + buffer.held) == list(range(416))


def test_a_buffer_of_one_keeps_the_order():
    assert shuffled(1, 0, 5) == [0, 1, 2, 3, 4]
