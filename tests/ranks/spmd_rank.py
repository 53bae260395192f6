"""One of two processes that run the same jobs without a driver: each compiles its own rank's program and feeds it its
part of the batch.

``python spmd_rank.py PORT RANK`` prints, for each job, the digests of both ranks' programs, the process groups, this
rank's part of every step's loss, and its parts of the variables at the end; and the modules of the driven run that were
loaded.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from nets import BATCH, Spread, begin, conv, data, define, dense

import oneflow as flow
from oneflow.engine import collective
from oneflow.engine.assignment.distribute import Assigned, CompileTarget, declared_feeds, distribute_job
from oneflow.engine.assignment.storage import stored_layouts, variable_layouts
from oneflow.engine.ir.graph import Graph
from oneflow.engine.ir.trained import state_decls
from oneflow.engine.job.function import default_session
from oneflow.engine.lowering.groups import process_groups
from oneflow.engine.passes.pipeline import compile_rank
from oneflow.engine.program.digest import digest
from oneflow.engine.program.notes import layout_of
from oneflow.engine.runtime.rank.rank import Rank
from oneflow.engine.step.step_clock import RunningScale, StepClock
from oneflow.optimizer.loss_scale import LossScale

STEPS = 5
CPU = torch.device("cpu")
DRIVEN = ("driver.driver", "driver.handler", "driver.lane")


def net(how: Spread, x: Any) -> Any:
    """LeNet with batch norm and dropout."""
    h = flow.layers.batch_normalization(conv(how, x, 6, 5, "conv1"), axis=1, momentum=0.9, name="norm")
    h = flow.nn.max_pool2d(flow.nn.relu(h), 2, 2, "SAME", "NCHW")
    h = flow.nn.max_pool2d(flow.nn.relu(conv(how, h, 10, 5, "conv2")), 2, 2, "SAME", "NCHW")
    h = flow.nn.dropout(flow.nn.relu(dense(how, flow.reshape(h, (h.shape[0], -1)), 30, "dense1")), 0.5)
    return dense(how, h, 10, "dense2")


def clipped() -> Any:
    clipping = flow.optimizer.grad_clipping.by_global_norm(1.0)
    return flow.optimizer.SGD(
        flow.optimizer.PiecewiseConstantScheduler([2], [0.05, 0.02]), momentum=0.9, grad_clipping=clipping
    )


JOBS = {
    "whole variables": Spread(2),
    "split variables": Spread(2, ("S(0)",)),
    "split states": Spread(2, shares_states=True),
}


def traced(how: Spread) -> Graph:
    begin(how.devices)
    define(net, how, clipped)
    session = default_session()
    session.trace()
    (job,) = session.jobs.values()
    assert job.graph is not None
    return job.graph


def run(how: Spread, number: int) -> dict[str, Any]:
    graph = traced(how)
    ranks = {(0, device): device for device in range(how.devices)}
    layouts = stored_layouts(graph, variable_layouts(graph, ranks))
    kept = {name: layouts[name] for name in graph.variables}
    assigned = distribute_job(graph, CompileTarget(ranks, kept, declared_feeds(graph, CPU), CPU))
    programs = [compile_rank(assigned, rank) for rank in assigned.ranks]
    groups = process_groups(assigned, lambda rank: compile_rank(assigned, rank))
    collective.make_groups(groups)

    rank = Rank(number, CPU)
    decls = [*graph.decls.values(), *state_decls(graph, graph.require_training().optimizer)]
    rank.variables.declare([(decl, layouts[decl.name]) for decl in decls], seed=0, draws=0)
    job = rank.load(programs[number])
    clock = StepClock(torch.zeros(1, dtype=torch.int64), assigned.rates(), RunningScale(LossScale(), None))
    losses = []
    for step in range(STEPS):
        result = job.step(clock.step(), [own_part(assigned, number, step)])
        ((loss,),) = result.results
        assert result.is_finite
        losses.append(loss.tolist())
        clock.advance(result.is_finite)
    return {
        "digests": [digest(program) for program in programs],
        "groups": groups,
        "losses": losses,
        "variables": {name: part.tolist() for name, part in rank.variables.tensors.items()},
    }


def own_part(assigned: Assigned, rank: int, step: int) -> list[torch.Tensor]:
    found = []
    for i, array in enumerate(data(BATCH, step % 3)):
        block = layout_of(assigned.arguments["feed", i]).block(array.shape, rank)
        assert block is not None
        found.append(torch.from_numpy(array[block]))
    return found


def main(port: str, rank: int) -> None:
    store = dist.TCPStore(
        "127.0.0.1", int(port), is_master=False, wait_for_workers=False, timeout=timedelta(seconds=60)
    )
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=60))
    found = {name: run(how, rank) for name, how in JOBS.items()}
    loaded = [name for name in DRIVEN if f"oneflow.engine.runtime.{name}" in sys.modules]
    dist.destroy_process_group()
    print(json.dumps({"jobs": found, "loaded": loaded}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
