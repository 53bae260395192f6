"""Jobs compiled for a world of one rank, and run without a session's backend."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx

from oneflow.engine.assignment.distribute import CompileTarget, distribute_job
from oneflow.engine.capture.joint import Like
from oneflow.engine.ir.graph import Graph
from oneflow.engine.job.function import default_session
from oneflow.engine.job.local import LocalBackend
from oneflow.engine.passes.pipeline import compile_rank
from oneflow.engine.program.program import Program
from oneflow.engine.sharding.mesh import Mesh, whole_on
from oneflow.engine.step.executor import Executor, StepNumbers
from oneflow.engine.step.rank_variables import RankVariables

CPU = torch.device("cpu")
ALONE = whole_on(Mesh((0,), (1,)))


def program_for(
    graph: Graph, feeds: Sequence[torch.Tensor], mixed_precision: bool = False, keeps_values: bool = True
) -> Program:
    shown = [Like(tuple(feed.shape), feed.dtype, CPU) for feed in feeds]
    target = CompileTarget({(0, 0): 0}, dict.fromkeys(graph.variables, ALONE), shown, CPU, mixed_precision)
    return compile_rank(distribute_job(graph, target), 0, keeps_values)


def step_graph(program: Program) -> fx.Graph:
    return program.sections["step"].graph


def prepare_graph(program: Program) -> fx.Graph | None:
    section = program.sections.get("prepare")
    return None if section is None else section.graph


def session_variables() -> RankVariables:
    """The variables of the default session, which runs on one device."""
    backend = default_session().backend
    assert isinstance(backend, LocalBackend)
    return backend.rank.variables


def run_step(
    program: Program, feeds: Sequence[torch.Tensor], executor: Executor | None = None, number: int = 0
) -> list[torch.Tensor]:
    """The results of one step of a predict program on the session's variables."""
    executor = executor or Executor(program, session_variables())
    result = executor.run(StepNumbers(number, (), 1.0), [feeds])
    return list(result.results[0])
