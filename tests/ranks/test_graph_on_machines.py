"""Graphs of global tensors on machines that share nothing but a wire: the numbers of one process, and as many bytes on
the wire as the plan says."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from networks import Network, needs_namespaces
from peers import free_port

import oneflow as flow
from oneflow.nn.graph import GraphModule

STEPS = 3
KINDS = {2: ("data", "ZeRO 1", "ZeRO 2", "ZeRO 3", "tensor", "pipeline"), 4: ("data x tensor",)}
B, S = flow.sbp.broadcast, flow.sbp.split
# Each rank trains by every kind of parallelism, and counts what its machine's network card has sent meanwhile.
PROGRAM = """
import json
import test_graph_on_machines as laws
import oneflow as flow
def sent():
    flow.comm.barrier()
    with open("/proc/net/dev") as devices:
        return next(int(line.split()[9]) for line in devices if line.strip().startswith("wire:"))
found = {}
for kind in laws.KINDS[flow.env.get_world_size()]:
    graph, x, y = laws.graph_of(kind)
    losses = [graph(x, y)]
    before = sent()
    losses += [graph(x, y) for _ in range(laws.STEPS - 1)]
    after = sent()
    found[kind] = [loss.numpy().mean().item() for loss in losses], (after - before) / (laws.STEPS - 1)
print(json.dumps(found))
"""


class Train(flow.nn.Graph):
    def __init__(self, model: torch.nn.Module, stage: int = 0, places: Sequence[Any] = ()) -> None:
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
        self.config.enable_zero(stage > 0, stage=stage or 1, shard_min_size=1)
        if places:
            self.config.set_gradient_accumulation_steps(4)
            for number, module in enumerate(self.model):
                module.to(GraphModule).set_stage(int(number > 1), places[int(number > 1)])

    def build(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = torch.nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        return loss


def network() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(256, 512),
        torch.nn.ReLU(),
        torch.nn.Linear(512, 1024),
        torch.nn.ReLU(),
        torch.nn.Linear(1024, 64),
    )


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    return torch.randn(256, 256, generator=draw), torch.randint(0, 64, (256,), generator=draw)


def graph_of(kind: str) -> tuple[Train, torch.Tensor, torch.Tensor]:
    """A graph that trains by this kind of parallelism on all ranks there are, and its batch."""
    size, model = flow.env.get_world_size(), network()
    everyone = flow.placement("cpu", [[0, 1], [2, 3]] if kind == "data x tensor" else list(range(size)))
    if kind == "pipeline":
        places = [flow.placement("cpu", [0]), flow.placement("cpu", [1])]
        for number, module in enumerate(model):
            module.to_global(places[int(number > 1)], B)
        return Train(model, 0, places), *(laid(whole, place, S(0)) for whole, place in zip(batch(), places))
    if "tensor" not in kind:
        graph = Train(model.to_global(everyone, B), int(kind[-1]) if kind.startswith("ZeRO") else 0)
        return graph, *(laid(whole, everyone, S(0)) for whole in batch())
    others, of_batch = ((B,), S(0)) if kind == "data x tensor" else ((), B)
    for name, sbp in {
        "0.weight": S(0),
        "0.bias": S(0),
        "2.weight": S(1),
        "2.bias": B,
        "4.weight": B,
        "4.bias": B,
    }.items():
        number, attribute = name.split(".")
        setattr(
            model[int(number)],
            attribute,
            torch.nn.Parameter(laid(getattr(model[int(number)], attribute).detach(), everyone, (*others, sbp))),
        )
    return Train(model), *(laid(whole, everyone, (of_batch, *others)) for whole in batch())


def laid(whole: torch.Tensor, place: Any, sbp: Any) -> torch.Tensor:
    """A tensor that every rank has, in parts."""
    return whole.to_global(place, [B] * len(place.hierarchy)).to_global(sbp=sbp)


@needs_namespaces()
@pytest.mark.slow
@pytest.mark.parametrize("count", KINDS)
def test_machines_train_as_one_process_and_send_what_the_plan_says(count: int) -> None:
    alone, (x, y) = Train(network()), batch()
    losses = [float(alone(x, y)) for _ in range(STEPS)]
    plans = {}
    with flow.planned_world(count):
        for kind in KINDS[count]:
            plans[kind] = flow.plan(*graph_of(kind))
    with Network(count) as machines:
        told = {
            "WORLD_SIZE": str(count),
            "MASTER_ADDR": machines.addresses[0],
            "MASTER_PORT": str(free_port()),
            "OMP_NUM_THREADS": "1",
            "ONEFLOW_STEP_TIMEOUT": "60",
        }
        ranks = [machines.run(rank, PROGRAM, RANK=str(rank), **told) for rank in range(count)]
        ended = [rank.communicate(timeout=240) for rank in ranks]
    for rank, (out, err) in enumerate(ended):
        assert out, err
        for kind, (found, sent) in json.loads(out).items():
            assert found == pytest.approx(losses, abs=1e-5), kind
            cost = next(cost for cost in plans[kind].ranks if covers(cost.ranks, rank))
            assert cost.sent <= sent <= 1.08 * cost.sent + 2**14, (
                kind,
                rank,
                cost.communicated,
                sent,
            )  # besides the payload there are headers


def covers(ranks: str, rank: int) -> bool:
    first, _, last = ranks.partition("-")
    return int(first) <= rank <= int(last or first)


LOST = """
import torch
import test_graph_on_machines as laws
import oneflow as flow
everyone = flow.placement.all("cpu")
graph = laws.Train(laws.network().to_global(everyone, flow.sbp.broadcast))
x, y = (whole[:16].to_global(everyone, flow.sbp.split(0)) for whole in laws.batch())
graph(x, y)
print("met", flush=True)
while True:
    graph(x, y)
"""


@needs_namespaces()
@pytest.mark.slow
def test_a_rank_that_is_killed_in_a_step_is_named_on_the_other_machine() -> None:
    with Network(2) as machines:
        told = {
            "WORLD_SIZE": "2",
            "MASTER_ADDR": machines.addresses[0],
            "MASTER_PORT": str(free_port()),
            "OMP_NUM_THREADS": "1",
            "ONEFLOW_STEP_TIMEOUT": "20",
        }
        ranks = [machines.run(rank, LOST, RANK=str(rank), **told) for rank in range(2)]
        for rank in ranks:
            assert rank.stdout is not None and rank.stdout.readline() == "met\n"
        ranks[1].kill()
        _, err = ranks[0].communicate(timeout=60)
        assert ranks[0].returncode == 1 and f"waited in vain for rank 1 on {socket.gethostname()}" in err
