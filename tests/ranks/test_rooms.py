"""Ranks of one host that are peers meet through shared memory: what collectives give there is what they give
anywhere."""

from __future__ import annotations

import pytest
from peers import run

PROGRAM = """
import sys
import numpy as np
import torch
import torch.distributed as dist
from oneflow.engine import collective
from oneflow.engine.collective import rooms
from oneflow.engine.world import join

world = join()
rank, size = world.rank, world.size
if sys.argv[1] == "sockets":
    rooms._sharing(dist.group.WORLD).is_on = False
else:
    assert rooms.room_of(world.ranks, torch.ones(1)) is not None
    rooms._LONGEST_ROW, rooms._SLICED_FROM = 1 << 12, 1 << 10


def drawn(seed, shape):
    return np.random.default_rng(seed).integers(-40, 40, shape).astype(np.float32)


def balanced(extent):
    return tuple(extent // size + (place < extent % size) for place in range(size))


def parts(array, dim, sizes):
    return np.split(array, np.cumsum(sizes)[:-1], dim)


def same(value, expected):
    np.testing.assert_array_equal(value.numpy(), expected)


def laws(shape, ranks):
    place, arrays = ranks.index(rank), [drawn(other, shape) for other in ranks]
    mine = torch.from_numpy(arrays[place].copy())
    for how, reduce in {"sum": np.sum, "max": np.max, "min": np.min}.items():
        same(collective.all_reduce(mine, how, ranks), reduce(np.stack(arrays), 0))
    same(collective.all_gather(mine, ranks), np.stack(arrays))
    for dim in range(len(shape)):
        sizes = balanced(shape[dim])
        same(collective.reduce_parts(mine, dim, sizes, ranks), parts(np.sum(np.stack(arrays), 0), dim, sizes)[place])
        own = torch.from_numpy(parts(arrays[0], dim, sizes)[place].copy())
        same(collective.gather_parts(own, dim, sizes, ranks), arrays[0])
        for other in range(len(shape)):
            if other != dim:
                targets = balanced(shape[other])
                same(collective.exchange_parts(own, dim, other, sizes, targets, ranks), parts(arrays[0], other, targets)[place])


laws((0, 3), world.ranks)  # first of all: no rank has a byte, and there is no memory yet
for shape in [(), (1,), (2, 3), (7, 5, 2), (61, 47)]:  # dims shorter than the group leave ranks without a part
    laws(shape, world.ranks)
    laws(shape, tuple(reversed(world.ranks)))
print("all of them")
"""


@pytest.mark.parametrize("size, way", [(2, "memory"), (3, "memory"), (3, "sockets")])
def test_collectives_of_peers_give_what_numpy_says(size, way):
    assert run(size, PROGRAM, way) == ["all of them\n"] * size
