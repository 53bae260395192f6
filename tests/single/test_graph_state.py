"""The state of a graph: modules, optimizers, counters and loss scale. A run that was stopped and resumed equals one
that never was."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import torch
from graph_models import MLP, EvalGraph, TrainGraph, eager_losses, same_state, seeded, sgd
from warm_python import WARM

import oneflow as flow
import oneflow.nn as nn
from oneflow.engine.core.errors import GraphError

DRAW = torch.Generator().manual_seed(3)
BATCHES = [(torch.randn(6, 8, generator=DRAW), torch.randint(4, (6,), generator=DRAW)) for _ in range(10)]


def resumable() -> TrainGraph:
    """Dropout, a schedule, a loss scale that changes, batch norm, two optimizers' worth of state."""
    model = seeded(lambda: nn.Sequential(MLP(p=0.3), nn.BatchNorm1d(4)))
    optimizer = flow.optim.AdamW(model.parameters(), lr=0.05, amsgrad=True)
    schedule = flow.optim.lr_scheduler.CosineDecayLR(optimizer, 8)
    return TrainGraph(
        model,
        optimizer,
        schedule,
        lambda graph: graph.set_grad_scaler(flow.amp.GradScaler(init_scale=64.0, growth_interval=3)),
    )


def run(graph: TrainGraph, steps: range) -> list[float]:
    """The second batch overflows."""
    return [
        graph(x * (float("inf") if i == 1 else 1.0), y).item()
        for i, (x, y) in list(enumerate(BATCHES))[steps.start : steps.stop]
    ]


def tensors(graph) -> dict[str, torch.Tensor]:
    state = graph.state_dict()
    return {**state.pop("model"), **{name: value for name, value in state.items() if isinstance(value, torch.Tensor)}}


RESUMED = """
import sys
import oneflow as flow
from test_graph_state import resumable, run
graph = resumable()
graph.load_state_dict(flow.load(sys.argv[1]))
print(run(graph, range(4, 10)))
flow.save(graph.state_dict(), sys.argv[2])
"""


def test_resumed_in_another_process_is_bit_equal_to_never_stopped(tmp_path):
    whole, first = resumable(), resumable()
    losses = run(whole, range(10))
    assert str(losses[:4]) == str(run(first, range(4)))
    flow.save(first.state_dict(), tmp_path / "saved")
    folders = [Path(flow.__file__).parents[1], Path(__file__).parent, Path(__file__).parents[1]]
    done = subprocess.run(
        [*WARM.command(), "-c", RESUMED, str(tmp_path / "saved"), str(tmp_path / "resumed")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(losses[4:])
    resumed = flow.load(tmp_path / "resumed")
    found = {**resumed.pop("model"), **{name: value for name, value in resumed.items() if name != "loss_fn"}}
    expected = tensors(whole)
    assert found.keys() == expected.keys() and len(found) > 20
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=0, equal_nan=True, msg=name)


def test_the_keys_are_those_of_the_modules_and_of_the_system():
    graph = resumable()
    graph(*BATCHES[0])
    state = graph.state_dict()
    own = {name for name in state if not name.startswith("model")}
    assert own == {"loss_fn", "System-Train-TrainStep", "System-Train-DynamicLossScale-TrainGraph-LossScale",
                   "System-Train-DynamicLossScale-TrainGraph-GoodStepCounter", "System-Train-Updates-AdamW"}  # fmt: skip
    assert list(state["model"]) == list(graph.model.to(nn.Module).state_dict())
    assert state["System-Train-TrainStep"].tolist() == [1]
    assert sum(name.startswith("model.0.layers.0.weight-") for name in state) == 3


def test_an_evaluation_graph_has_the_state_of_its_modules_alone():
    model = seeded(MLP)
    assert list(EvalGraph(model).state_dict()) == ["model"]


def test_a_state_is_written_into_a_given_dictionary():
    given = {"other": 1}
    assert EvalGraph(seeded(MLP)).state_dict(given) is given and set(given) == {"other", "model"}


def test_a_state_is_loaded_into_modules_that_eager_code_shares():
    donor, model = seeded(MLP), MLP()
    EvalGraph(model).load_state_dict(EvalGraph(donor).state_dict())
    same_state(donor, model)


def test_loading_after_the_first_call_is_refused():
    graph = resumable()
    state = graph.state_dict()
    graph(*BATCHES[0])
    with pytest.raises(
        AssertionError, match=r"TrainGraph_\d+ is compiled; load_state_dict is called before its first call"
    ):
        graph.load_state_dict(state)


def test_what_is_missing_or_strange_is_refused_unless_told_otherwise():
    graph, model = EvalGraph(seeded(MLP)), MLP()
    with pytest.raises(
        GraphError,
        match=r"the state has no module \['model'\] and modules \['other'\] that the graph has not; strict=False takes what fits",
    ):
        graph.load_state_dict({"other": {}})
    graph.load_state_dict({"other": {}}, strict=False)
    with pytest.raises(RuntimeError, match="Missing key"):
        graph.load_state_dict({"model": {}})
    other = EvalGraph(model).state_dict()
    other["model"]["strange"] = torch.ones(1)
    with pytest.raises(RuntimeError, match="Unexpected key"):
        graph.load_state_dict(other)
    graph.load_state_dict(other, strict=False)
    same_state(graph.model.to(nn.Module), model)


def test_the_state_of_a_graph_that_did_not_train_has_no_counters():
    with pytest.raises(GraphError, match="the state has no 'System-Train-TrainStep'; it is that of another graph"):
        resumable().load_state_dict({**resumable().state_dict(), "System-Train-TrainStep": None})


def test_a_state_with_the_keys_of_oneflow_goes_on():
    """Its keys: the number of steps alone, and the number of the graph in those of the loss scale."""
    whole, first = resumable(), resumable()
    for graph in (whole, first):
        graph(*BATCHES[0])
    prefix = "System-Train-DynamicLossScale-"
    state = {
        name.replace(f"{prefix}TrainGraph", f"{prefix}GraphBase_0"): value
        for name, value in first.state_dict().items()
        if "Updates" not in name
    }
    assert {
        "model.0.layers.0.weight-m",
        "model.0.layers.0.weight-v",
        "System-Train-TrainStep",
        f"{prefix}GraphBase_0-LossScale",
    } <= state.keys()
    resumed = resumable()
    resumed.load_state_dict(state)
    assert [resumed(x, y).item() for x, y in BATCHES[2:5]] == [whole(x, y).item() for x, y in BATCHES[2:5]]


def test_states_of_other_shapes_are_refused():
    graph = resumable()
    graph(*BATCHES[0])
    state = graph.state_dict()
    name = next(name for name in state if name.startswith("model.0.layers.0.weight-"))
    with pytest.raises(
        GraphError, match=rf"the loaded state '{name}' has the shape \(3,\), its parameter's is \(16, 8\)"
    ):
        resumable().load_state_dict({**state, name: torch.ones(3)})


def test_a_state_that_was_saved_by_an_eager_optimizer_goes_on_in_a_graph():
    eager, model = seeded(MLP), seeded(MLP)
    loop = sgd(eager)
    eager_losses(eager, loop, iter(BATCHES[:3]))
    model.load_state_dict(eager.state_dict())
    optimizer = sgd(model)
    optimizer.load_state_dict(loop.state_dict())
    expected = eager_losses(eager, loop, iter(BATCHES[3:6]))
    graph = TrainGraph(model, optimizer)
    torch.testing.assert_close([graph(x, y).item() for x, y in BATCHES[3:6]], expected)


def test_a_state_dict_follows_the_graph_and_a_saved_one_does_not(tmp_path):
    graph = resumable()
    graph(*BATCHES[0])
    flow.save(graph.state_dict(), tmp_path / "saved")
    live = graph.state_dict()
    graph(*BATCHES[2])
    assert live["System-Train-TrainStep"].item() == 2
    assert flow.load(tmp_path / "saved")["System-Train-TrainStep"].item() == 1
