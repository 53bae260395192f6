"""Which process groups a job's programs need: what the programs of a few ranks tell is what those of all would tell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from distributed import compiled
from mirrored_jobs import mirrored
from nets import LAYOUTS, Spread, batch_normed, conv, dense, lenet, mlp

import oneflow as flow
from oneflow.engine import collective
from oneflow.engine.assignment.distribute import Assigned
from oneflow.engine.lowering.groups import process_groups
from oneflow.engine.passes.pipeline import compile_rank
from oneflow.engine.program.program import Program

PRINTED = """
import json
from test_groups import CASES, MANY, groups
print(json.dumps({name: groups(CASES[name]()) for name in MANY}))
"""
RATE = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
CLIPPING = flow.optimizer.grad_clipping.by_global_norm(0.5)


def sgd() -> Any:
    return flow.optimizer.SGD(RATE, momentum=0.9)


def trained(net: Callable[[Spread, Any], Any], how: Spread, optimizer: Callable[[], Any] = sgd) -> Assigned:
    images, labels = flow.FixedTensorDef((how.batch, 1, 12, 12)), flow.FixedTensorDef((how.batch,), flow.int32)

    def job(x=images, y=labels):
        logits = net(how, x)
        with how.stage(1):
            loss = flow.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
        optimizer().minimize(loss)
        return loss

    return compiled(job, how.devices, config=how.config())


def mirrored_job() -> Assigned:
    def job(x=flow.FixedTensorDef((9, 1, 12, 12))):
        loss = flow.math.square(dense(Spread(), flow.reshape(x, (3, -1)), 4, "d"))
        flow.optimizer.SGD(RATE, grad_clipping=CLIPPING).minimize(loss)
        return loss

    return compiled(job, 3, config=mirrored())


def net_in_two_stages(how: Spread, x: Any) -> Any:
    """Each stage is split along both axes of a mesh of its own."""
    with flow.scope.placement("cpu", "0:0-3", (2, 2)):
        h = flow.nn.relu(conv(how, x, 8, 3, "conv"))
    with flow.scope.placement("cpu", "0:4-7", (2, 2)):
        return dense(how, flow.reshape(h, (h.shape[0], -1)), 10, "dense")


def weight(name: str, *lies: str) -> Any:
    return flow.get_variable(name, (6, 6), initializer=flow.zeros_initializer(), parallel_distribution=list(lies))


def pair_beside_square(how: Spread, x: Any) -> Any:
    """The ranks 0 and 1 are a mesh of their own, and one row of a square: what they do as a mesh is not all that is
    done along its rows."""
    with flow.scope.placement("cpu", "0:0-1"):
        first = dense(Spread(), flow.reshape(x, (x.shape[0], -1)), 10, "pair")
    with how.stage(0):
        return mlp(how, x) + first


CASES: dict[str, Callable[[], Assigned]] = {
    "data parallel": lambda: trained(batch_normed, LAYOUTS["dp4"]),
    "uneven batch": lambda: trained(batch_normed, Spread(3, batch=7)),
    "tensor parallel": lambda: trained(mlp, Spread(4, ("S(0)",))),
    "2x2": lambda: trained(lenet, LAYOUTS["dp x tp"]),
    "2x3": lambda: trained(mlp, Spread(6, ("B", "S(0)"), hierarchy=(2, 3))),
    "2x2, split twice": lambda: trained(mlp, Spread(4, ("S(0)", "S(0)"), hierarchy=(2, 2))),
    "2x2x2": lambda: trained(mlp, Spread(8, ("B", "S(0)", "S(0)"), hierarchy=(2, 2, 2))),
    "pipeline of two stages of two": lambda: trained(lenet, Spread(4, stages=("0:0-1", "0:2-3"), micro_batches=2)),
    "pipeline of squares": lambda: trained(net_in_two_stages, Spread(8, ("B", "S(0)"))),
    "split states": lambda: trained(lenet, LAYOUTS["zero"]),
    "split states on a square": lambda: trained(lenet, Spread(4, ("B", "S(0)"), hierarchy=(2, 2), shares_states=True)),
    "split states of stages": lambda: trained(lenet, Spread(4, stages=("0:0-1", "0:2-3"), shares_states=True)),
    "clipped": lambda: trained(
        lenet, Spread(4, ("B", "S(0)"), hierarchy=(2, 2)), lambda: flow.optimizer.SGD(RATE, grad_clipping=CLIPPING)
    ),
    "clipped stages": lambda: trained(
        mlp, Spread(4, stages=("0:0-1", "0:2-3")), lambda: flow.optimizer.SGD(RATE, grad_clipping=CLIPPING)
    ),
    "LAMB on split variables": lambda: trained(
        mlp, Spread(4, ("B", "S(0)"), hierarchy=(2, 2)), lambda: flow.optimizer.LAMB(RATE)
    ),
    "LAMB in stages": lambda: trained(
        mlp, Spread(4, ("S(0)",), stages=("0:0-1", "0:2-3")), lambda: flow.optimizer.LAMB(RATE)
    ),
    "mirrored": mirrored_job,
    "a pair beside a square": lambda: trained(pair_beside_square, LAYOUTS["dp x tp"]),
}


MANY = ("2x2x2", "pipeline of squares", "split states on a square", "LAMB in stages", "a pair beside a square")
"""Cases of several groups."""


def groups(assigned: Assigned) -> list[tuple[int, ...]]:
    return process_groups(assigned, lambda rank: compile_rank(assigned, rank))


def met(program: Program) -> Iterator[frozenset[int]]:
    for section in program.sections.values():
        for node in section.graph.nodes:
            yield from map(frozenset, collective.groups_in(node.target, node.args, node.kwargs))


@pytest.mark.parametrize("case", CASES)
def test_the_groups_of_a_few_ranks_programs_are_those_of_all(case: str) -> None:
    assigned = CASES[case]()
    lowered: list[int] = []

    def program(rank: int) -> Program:
        lowered.append(rank)
        return compile_rank(assigned, rank)

    found = process_groups(assigned, program)
    needed = {group for rank in assigned.ranks for group in met(compile_rank(assigned, rank))}
    assert needed and all(len(group) > 1 for group in needed)
    assert {frozenset(group) for group in found} == needed
    assert len(found) == len(set(found))
    assert len(lowered) <= len(assigned.meshes)


def test_one_program_speaks_for_a_thousand_ranks() -> None:
    def job(x=flow.FixedTensorDef((1024, 6))):
        with flow.scope.placement("cpu", "0:0-1023", (128, 8)):
            loss = flow.math.reduce_mean(flow.matmul(x, weight("square", "B", "S(1)")), axis=[1])
        flow.optimizer.SGD(RATE).minimize(loss)
        return loss

    assigned = compiled(job, 1024)
    lowered: list[int] = []
    found = process_groups(assigned, lambda rank: lowered.append(rank) or compile_rank(assigned, rank))
    assert set(lowered) == {0}
    rows = {tuple(range(first, first + 8)) for first in range(0, 1024, 8)}
    columns = {tuple(range(first, 1024, 8)) for first in range(8)}
    assert rows | columns <= set(found) <= rows | columns | {tuple(range(1024))}


@pytest.mark.slow
def test_every_process_finds_them_in_the_same_order() -> None:
    """Torch numbers groups as they come; two ranks with different orders would wait for each other for ever."""
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": seed}
    done = subprocess.run(
        [sys.executable, "-c", PRINTED], capture_output=True, text=True, env=variables, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {name: [list(group) for group in groups(CASES[name]())] for name in MANY}
