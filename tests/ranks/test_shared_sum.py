"""Sums and gathers over ranks are the same whichever way they go: by sockets, or through memory that the ranks of a
host share."""

from __future__ import annotations

import pytest
import torch

from oneflow.engine.runtime.driver.cluster import Cluster
from oneflow.engine.runtime.launch.world import World

HANDLER = "cluster_handlers:Echo"
SHAPES = (300, 301), (7,), (2, 3, 5, 4)  # together no multiple of the number of ranks


def values(shapes, ranks, dtype=torch.float32, steps=3):
    """For each rank what it adds in each step. One of them lies in memory in another order."""
    torch.manual_seed(0)
    made = [[[(torch.randn(shape) * 8).to(dtype) for shape in shapes] for _ in range(steps)] for _ in range(ranks)]
    for of_rank in made:
        for step in of_rank:
            step[-1] = step[-1].contiguous(memory_format=torch.channels_last)
    return made


def sums(made, elsewhere=()):
    cluster = Cluster(World("cpu", devices_per_machine=len(made)), HANDLER)
    try:
        return cluster.call("sums", [(steps, rank in elsewhere) for rank, steps in enumerate(made)], what="adding")
    finally:
        cluster.close()


def assert_sums(found, made) -> None:
    for step, summed in enumerate(found):
        for i, value in enumerate(summed):
            expected = sum(of_rank[step][i].double() for of_rank in made)
            assert value.dtype == made[0][step][i].dtype
            assert value.is_contiguous(
                memory_format=torch.channels_last if value.dim() == 4 else torch.contiguous_format
            )
            torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_ranks_of_one_host_add_up_in_shared_memory(ranks: int) -> None:
    made = values(SHAPES, ranks)
    for found, is_shared in sums(made):
        assert is_shared
        assert_sums(found, made)


@pytest.mark.parametrize("elsewhere", [(), (0, 1)])
def test_a_value_may_have_other_strides_on_each_rank(elsewhere: tuple[int, ...]) -> None:
    made = values(SHAPES, 2)
    for step in made[1]:
        step[:] = [step[0].t().contiguous().t(), step[1], step[2].contiguous()]
    for found, _ in sums(made, elsewhere):
        assert_sums(found, made)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32])
def test_any_dtype_can_be_added_up(dtype: torch.dtype) -> None:
    made = values(SHAPES, 2, dtype)
    for found, is_shared in sums(made):
        assert is_shared
        assert_sums(found, made)


def test_every_rank_and_every_run_gets_the_same_bits() -> None:
    made = values(SHAPES, 3)
    first, second = sums(made), sums(made)
    for found, _ in (*first, *second):
        for step, expected in zip(found, first[0][0]):
            assert all(map(torch.equal, step, expected))


def test_ranks_of_several_hosts_add_up_by_sockets() -> None:
    made = values(SHAPES, 2)
    for found, is_shared in sums(made, elsewhere=(0, 1)):
        assert not is_shared
        assert_sums(found, made)


def test_sums_may_be_begun_before_others_are_waited_for() -> None:
    cluster = Cluster(World("cpu", devices_per_machine=3), HANDLER)
    try:
        expected = [6.0 * step + 3.0 * number for step in range(20) for number in range(3)]
        assert cluster.broadcast("overlapping_sums", 20, what="adding") == [expected] * 3
    finally:
        cluster.close()


@pytest.mark.parametrize(("dim", "sizes"), [(0, (4, 4, 4)), (1, (4, 4, 4)), (0, (5, 5, 2)), (1, (5, 0, 7))])
@pytest.mark.parametrize("ranks", [(0, 1, 2), (2, 0, 1)])
def test_parts_are_gathered_in_the_order_of_the_placement(
    dim: int, sizes: tuple[int, ...], ranks: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    wholes = [torch.randn((3, 12) if dim else (12, 3)) for _ in range(3)]
    parts = [whole.split(list(sizes), dim) for whole in wholes]
    cluster = Cluster(World("cpu", devices_per_machine=3), HANDLER)
    try:
        given = [([of_step[ranks.index(rank)] for of_step in parts], dim, sizes, ranks) for rank in range(3)]
        for found in cluster.call("gathers", given, what="gathering"):
            assert all(map(torch.equal, found, [whole for whole in wholes for _ in range(3)]))
    finally:
        cluster.close()
