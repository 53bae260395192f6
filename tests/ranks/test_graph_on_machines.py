"""Graphs of global tensors on machines that share nothing but a wire: the numbers of one process, and as many bytes on the wire as the plan says."""

from __future__ import annotations

import json
import socket

import pytest
import torch
from networks import Network, needs_namespaces
from peers import free_port

import oneflow as flow

STEPS = 4
# Each rank trains and counts what its machine's network card has sent meanwhile.
PROGRAM = """
import json, sys
import torch
import test_graph_on_machines as laws
import oneflow as flow
stage, everyone = int(sys.argv[1]), flow.placement.all("cpu")
def sent():
    return int(open("/sys/class/net/wire/statistics/tx_bytes").read())
model = laws.network().to_global(everyone, flow.sbp.broadcast)
graph = laws.Train(model, stage)
x, y = laws.batch()
own = slice(16 * flow.env.get_rank(), 16 * (flow.env.get_rank() + 1))
x, y = x[own].to_global(everyone, flow.sbp.split(0)), y[own].to_global(everyone, flow.sbp.split(0))
losses = [graph(x, y)]
flow.comm.barrier()
before = sent()
losses += [graph(x, y) for _ in range(laws.STEPS - 1)]
flow.comm.barrier()
after = sent()
print(json.dumps([[loss.item() for loss in losses], (after - before) / (laws.STEPS - 1)]))
"""


class Train(flow.nn.Graph):
    def __init__(self, model: torch.nn.Module, stage: int) -> None:
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
        self.config.enable_zero(stage > 0, stage=stage or 1)

    def build(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = torch.nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        return loss


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 64))


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    return torch.randn(32, 256, generator=draw), torch.randint(0, 64, (32,), generator=draw)


@needs_namespaces()
@pytest.mark.slow
@pytest.mark.parametrize("stage", [0, 2])
def test_two_machines_train_as_one_process_and_send_what_the_plan_says(stage: int) -> None:
    graph, (x, y) = Train(network(), stage), batch()
    (cost,) = flow.plan(graph, x, y, devices=2).ranks
    alone = [float(graph(x, y)) for _ in range(STEPS)]
    with Network(2) as machines:
        told = {"WORLD_SIZE": "2", "MASTER_ADDR": machines.addresses[0], "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1", "ONEFLOW_STEP_TIMEOUT": "60"}
        ranks = [machines.run(rank, PROGRAM, str(stage), RANK=str(rank), **told) for rank in range(2)]
        ended = [rank.communicate(timeout=120) for rank in ranks]
    for out, err in ended:
        assert out, err
        losses, sent = json.loads(out)
        assert losses == pytest.approx(alone, abs=1e-5)
        assert cost.sent <= sent <= 1.06 * cost.sent, (cost.communicated, sent)  # besides the payload there are headers


LOST = """
import torch
import test_graph_on_machines as laws
import oneflow as flow
everyone = flow.placement.all("cpu")
graph = laws.Train(laws.network().to_global(everyone, flow.sbp.broadcast), 0)
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
        told = {"WORLD_SIZE": "2", "MASTER_ADDR": machines.addresses[0], "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1", "ONEFLOW_STEP_TIMEOUT": "20"}
        ranks = [machines.run(rank, LOST, RANK=str(rank), **told) for rank in range(2)]
        for rank in ranks:
            assert rank.stdout is not None and rank.stdout.readline() == "met\n"
        ranks[1].kill()
        _, err = ranks[0].communicate(timeout=60)
        assert ranks[0].returncode == 1 and f"waited in vain for rank 1 on {socket.gethostname()}" in err
