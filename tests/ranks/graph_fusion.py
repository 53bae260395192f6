"""Laws of the tiers of fusion on ranks: kernels of clusters are taken over by all ranks at the same step, and give what
one process has."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from global_rank import RANK, SIZE, B, S, spread
from graph_laws import ALL, close, whole
from torch import nn

import oneflow as flow
from oneflow.engine.core.errors import GraphError
from oneflow.engine.world import join

WIDTH = 128


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.linear, self.norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: Any) -> Any:
        return F.gelu(self.norm(x + self.linear(x)))


class Train(flow.nn.Graph):
    def __init__(self, net: nn.Module, tier: str) -> None:
        super().__init__()
        self.net = net
        self.add_optimizer(flow.optim.SGD(net.parameters(), lr=0.5, momentum=0.9))
        self.config.set_fusion(tier)

    def build(self, x: Any) -> Any:
        loss = self.net(x).square().mean()
        loss.backward()
        return loss


def batch(number: int) -> torch.Tensor:
    return torch.randn(SIZE * WIDTH, WIDTH, generator=torch.Generator().manual_seed(number))


def on_ranks(tier: str) -> tuple[Any, Any]:
    net = Net()
    net.to_global(ALL, B)  # type: ignore[operator]
    graph = Train(net, tier)
    return graph, lambda number: whole(graph(spread(batch(number), ALL, S(0))))


def alone(steps: int) -> list[torch.Tensor]:
    graph = Train(Net(), "off")
    return [graph(batch(number)) for number in range(steps)]


def clusters(graph: Any) -> Any:
    (step,) = graph._compiled.values()
    return step.executor.clusters


def gathered(thing: Any) -> list[Any]:
    """What each rank has to say."""
    join()
    found: list[Any] = [None] * SIZE
    dist.all_gather_object(found, thing)
    return found


@contextmanager
def one_cache() -> Iterator[None]:
    """A cache that all ranks share, and nobody else."""
    folder = gathered(tempfile.mkdtemp() if RANK == 0 else None)[0]
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = folder
    try:
        yield
    finally:
        gathered(None)
        if before is None:
            del os.environ["XDG_CACHE_HOME"]
        else:
            os.environ["XDG_CACHE_HOME"] = before
        if RANK == 0:
            shutil.rmtree(folder)


def law_ranks_take_kernels_over_at_the_same_step_and_the_next_run_has_them() -> None:
    expected = alone(4)
    with one_cache():
        graph, step = on_ranks("later")
        found = [step(0)]
        assert clusters(graph).taken_at is None
        clusters(graph).wait()
        close(found + [step(number) for number in range(1, 4)], expected)
        assert clusters(graph).taken_at == 1
        graph, step = on_ranks("later")
        found = [step(0)]
        is_ready = clusters(graph).are_ready
        clusters(graph).are_ready = lambda: RANK != 1 and is_ready()  # the others wait for rank 1
        found.append(step(1))
        clusters(graph).are_ready = is_ready
        close(found + [step(number) for number in range(2, 4)], expected)
        assert gathered(clusters(graph).taken_at) == [2] * SIZE
        graph, step = on_ranks("wait")
        close([step(number) for number in range(4)], expected)
        assert all(one._kernel is not None for one in clusters(graph)._clusters.values())


def law_each_program_of_a_graph_takes_over_at_one_step_of_all_ranks() -> None:
    """Whether ranks have their kernels is made up here, so nothing is compiled; where they take over, they find none
    and run their ops."""
    with one_cache():
        net = Net()
        net.to_global(ALL, B)  # type: ignore[operator]
        graph = Train(net, "later")
        graph.config.enable_dynamic_shapes()

        def step(rows: int) -> None:
            graph(spread(torch.ones(SIZE * rows, WIDTH), ALL, S(0)))

        def is_ready(number: int, on: Any) -> None:
            list(graph._compiled.values())[number].executor.clusters.are_ready = lambda: on(RANK)

        def taken_at() -> list[Any]:
            found = gathered([one.executor.clusters.taken_at for one in graph._compiled.values()])
            assert found == found[:1] * SIZE, found
            return found[0]

        step(WIDTH)
        is_ready(0, lambda rank: True)
        step(WIDTH)
        assert taken_at() == [1]
        step(2 * WIDTH)  # a program of its own, beside one that has taken over
        is_ready(1, lambda rank: rank != 1)
        step(2 * WIDTH)
        step(WIDTH)
        assert taken_at() == [1, None]
        is_ready(1, lambda rank: True)
        step(2 * WIDTH)
        assert taken_at() == [1, 5]


def law_ranks_of_different_tiers_are_told_so() -> None:
    _, step = on_ranks("off" if RANK else "native")
    try:
        step(0)
    except GraphError as error:
        assert "fusion native" in str(error) and "fusion off" in str(error), error
    else:
        raise AssertionError("no error")
