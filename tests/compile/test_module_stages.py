"""Graphs of modules go through the stages of jobs: each leaves what it says, and a program has one digest in every
process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch
from graph_models import GPT, LSTM, MLP, MODELS, EvalGraph, TrainGraph, seeded, sgd

import oneflow as flow
from oneflow.engine.assignment.distribute import Spread, distribute
from oneflow.engine.graph.compiled import Sources, capture
from oneflow.engine.graph.structure import call_of
from oneflow.engine.passes.pipeline import PASSES, Setting, compile_rank
from oneflow.engine.passes.verify import verify
from oneflow.engine.program.digest import digest
from oneflow.engine.program.program import Program
from oneflow.engine.sharding.mesh import Mesh, whole_on
from oneflow.nn.graph import GraphModule

TRAINING_PASSES = [each.name for each in PASSES if each.when(Setting(folds=False, fuses=True, is_common=True))]
PRINTED = """
import json
from test_module_stages import digests
print(json.dumps(digests()))
"""


def compiled(graph: Any, *inputs: torch.Tensor) -> tuple[Program, list[str]]:
    """The program of a graph, and the stages that were looked at."""
    seen: list[str] = []

    def after(stage: str, left: Any) -> None:
        verify(stage, left)
        seen.append(stage)

    captured = capture(graph._graph, call_of(inputs, {}), Sources())
    layouts = dict.fromkeys(captured.decl.decls, whole_on(Mesh((0,), (1,))))
    assigned = distribute(
        captured.decl, captured.traced.joint, Spread({(0, 0): 0}, layouts, captured.device), after=after
    )
    return compile_rank(assigned, 0, keeps_values=False, after=after), seen


def everything(graph: Any) -> None:
    """Settings that change what is compiled."""
    graph.config.set_gradient_accumulation_steps(3)
    graph.config.enable_amp(True, dtype=flow.bfloat16)
    graph.set_grad_scaler(flow.amp.GradScaler())
    for _, module in graph.model.named_modules():
        module.to(GraphModule).activation_checkpointing = True


def train(make: Any, settings: Any = lambda graph: None) -> TrainGraph:
    model = seeded(make)
    return TrainGraph(model, sgd(model), settings=settings)


def programs() -> list[Program]:
    x, y = torch.ones(6, 8), torch.zeros(6, dtype=torch.int64)
    ids = torch.ones(3, 8, dtype=torch.int64)
    return [
        compiled(train(lambda: MLP(p=0.5)), x, y)[0],
        compiled(train(MLP, everything), x, y)[0],
        compiled(train(lambda: GPT(p=0.1)), ids, ids.flatten())[0],
        compiled(EvalGraph(seeded(MLP).eval()), x)[0],
    ]


def digests() -> list[str]:
    """Without the names of the graphs, which count those of a process."""
    return [digest(replace(program, job="graph")) for program in programs()]


@pytest.mark.parametrize("name", MODELS)
def test_every_stage_leaves_what_it_says(name: str) -> None:
    ((x, y),) = MODELS[name].batches(1)
    _, stages = compiled(train(MODELS[name].model), x, y)
    assert stages == ["joint", "clean", "free strides", "recompute", "assigned", "lowered", *TRAINING_PASSES]


@pytest.mark.parametrize("make", [MLP, LSTM, GPT])
def test_stages_with_every_setting(make: Any) -> None:
    case = next(case for case in MODELS.values() if case.model is make)
    ((x, y),) = case.batches(1)
    size = x.shape[0] // 3 * 3
    compiled(train(make, everything), x[:size], y[: size * (len(y) // len(x))])


def test_stages_of_an_evaluation_graph() -> None:
    compiled(EvalGraph(seeded(MLP).eval()), torch.ones(6, 8))


def test_every_process_has_the_same_digests_and_every_program_its_own() -> None:
    here = digests()
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "3"}
    done = subprocess.run([sys.executable, "-c", PRINTED], capture_output=True, text=True, env=variables, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == here and len(set(here)) == len(here) == 4
