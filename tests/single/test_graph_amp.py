"""Mixed precision and loss scaling in a graph."""

from __future__ import annotations

import pytest
import torch
from graph_models import GPT, MLP, MODELS, EvalGraph, TrainGraph, eager_losses, same_state, seeded, sgd

import oneflow as flow
import oneflow.nn as nn
from oneflow.engine.core.errors import ArgumentError

DRAW = torch.Generator().manual_seed(3)
BATCHES = [(torch.randn(6, 8, generator=DRAW), torch.randint(4, (6,), generator=DRAW)) for _ in range(6)]


class Recording(nn.Module):
    """Notes the dtypes that its layers give."""

    def __init__(self):
        super().__init__()
        self.linear, self.dtypes = nn.Linear(8, 4), []

    def forward(self, x):
        hidden = self.linear(x)
        out = flow.nn.functional.mse_loss(hidden, hidden * 2)
        self.dtypes += [x.dtype, hidden.dtype, out.dtype]
        return hidden


def with_amp(dtype):
    return lambda graph: graph.config.enable_amp(True, dtype=dtype)


def test_bfloat16_is_computed_in_on_the_cpu():
    model = Recording()
    graph = TrainGraph(model, sgd(model), settings=with_amp(flow.bfloat16))
    graph(*BATCHES[0])
    assert model.dtypes == [flow.float32, flow.bfloat16, flow.float32]
    assert all(p.dtype == flow.float32 for p in model.parameters())
    assert all(
        state.dtype == flow.float32
        for kept in graph._graph.added[0].optimizer.state.values()
        for state in kept.values()
    )


def test_a_step_of_bfloat16_is_that_of_autocast():
    eager, model = seeded(MLP), seeded(MLP)
    loop = sgd(eager)
    graph = TrainGraph(model, sgd(model), settings=with_amp(flow.bfloat16))
    for x, y in BATCHES:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            expected = nn.CrossEntropyLoss()(eager(x), y)
        loop.zero_grad()
        expected.backward()
        loop.step()
        torch.testing.assert_close(graph(x, y).float(), expected.detach().float(), rtol=1e-2, atol=1e-2)
    same_state(eager, model, 1e-2)


def test_losses_of_a_gpt_in_bfloat16_are_near_those_in_float32():
    case = MODELS["GPT"]
    eager, model = seeded(GPT), seeded(GPT)
    expected = eager_losses(eager, sgd(eager), case.batches(5))
    graph = TrainGraph(model, sgd(model), settings=with_amp(flow.bfloat16))
    losses = [graph(x, y).item() for x, y in case.batches(5)]
    torch.testing.assert_close(losses, expected, rtol=0.03, atol=0.03)
    assert losses != expected


def test_float16_on_the_cpu_stays_float32():
    eager, model = seeded(MLP), seeded(MLP)
    expected = eager_losses(eager, sgd(eager), iter(BATCHES))
    graph = TrainGraph(model, sgd(model), settings=lambda graph: graph.config.enable_amp(True))
    torch.testing.assert_close([graph(x, y).item() for x, y in BATCHES], expected, rtol=1e-6, atol=1e-6)


def test_amp_that_is_switched_off_again_is_off():
    class Off(EvalGraph):
        def __init__(self, model):
            super().__init__(model)
            self.config.enable_amp(True, dtype=flow.bfloat16)
            self.config.enable_amp(False)

    model = Recording()
    Off(model)(BATCHES[0][0])
    assert set(model.dtypes) == {flow.float32}


def test_an_evaluation_graph_computes_in_bfloat16_too():
    class Lower(EvalGraph):
        def __init__(self, model):
            super().__init__(model)
            self.config.enable_amp(dtype=flow.bfloat16)

    model = nn.Linear(8, 4)
    made = Lower(model)(BATCHES[0][0])
    assert made.dtype == flow.bfloat16
    torch.testing.assert_close(made.float(), model(BATCHES[0][0]).detach(), rtol=1e-2, atol=1e-2)


def test_other_dtypes_are_refused():
    with pytest.raises(ArgumentError, match="enable_amp takes dtype=flow.float16 or flow.bfloat16, got torch.float64"):
        TrainGraph(seeded(MLP), sgd(seeded(MLP)), settings=with_amp(flow.float64))


# ------------------------------------------------------------------ loss scaling


def scaled(scaler):
    return lambda graph: graph.set_grad_scaler(scaler)


@pytest.mark.parametrize(
    "scaler",
    [
        flow.amp.StaticGradScaler(2.0**12),
        flow.amp.GradScaler(init_scale=2.0**12),
        flow.amp.GradScaler(enabled=False),
        None,
    ],
)
@pytest.mark.parametrize("count", [1, 2])
def test_a_scale_of_a_power_of_two_changes_nothing(scaler, count):
    def settings(graph):
        graph.set_grad_scaler(scaler)
        graph.config.set_gradient_accumulation_steps(count)

    def optimizer(model):
        return flow.optim.SGD(
            [{"params": model.parameters(), "clip_grad_max_norm": 0.1, "clip_grad_norm_type": 2.0}],
            lr=0.1,
            momentum=0.9,
        )

    eager, model = seeded(MLP), seeded(MLP)
    expected = eager_losses(eager, optimizer(eager), iter(BATCHES), clips=True)
    graph = TrainGraph(model, optimizer(model), settings=settings)
    torch.testing.assert_close([graph(x, y).mean().item() for x, y in BATCHES], expected, rtol=1e-5, atol=1e-6)
    same_state(eager, model, 1e-5)


def scale_of(graph) -> tuple[float, int]:
    state = graph.state_dict()
    prefix = f"System-Train-DynamicLossScale-{type(graph).__name__}"
    return state[f"{prefix}-LossScale"].item(), state[f"{prefix}-GoodStepCounter"].item()


def test_an_overflow_skips_the_update_and_halves_the_scale_which_grows_again():
    model = seeded(MLP)
    optimizer = flow.optim.Adam(model.parameters(), lr=0.01)
    graph = TrainGraph(model, optimizer, settings=scaled(flow.amp.GradScaler(init_scale=8.0, growth_interval=2)))
    (x, y), *others = BATCHES
    graph(x, y)
    assert scale_of(graph) == (8.0, 1)
    before = {name: value.clone() for name, value in graph.state_dict()["model"].items()}
    moments = {name: value.clone() for name, value in graph.state_dict().items() if name.startswith("model.")}
    graph(x * float("inf"), y)
    assert scale_of(graph) == (4.0, 0) and optimizer.step_count == 1 and graph._graph.step.item() == 2
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert len(moments) == 8 and all(torch.equal(graph.state_dict()[name], value) for name, value in moments.items())
    graph(x, y)
    assert scale_of(graph) == (4.0, 1)
    graph(x, y)
    assert scale_of(graph) == (8.0, 0)
    assert not torch.equal(model.layers[0].weight, before["layers.0.weight"])


def test_after_an_overflow_updates_are_those_of_a_run_without_it():
    eager, model = seeded(MLP), seeded(MLP)
    eager_losses(eager, flow.optim.Adam(eager.parameters(), lr=0.01), iter(BATCHES))
    graph = TrainGraph(
        model, flow.optim.Adam(model.parameters(), lr=0.01), settings=scaled(flow.amp.GradScaler(init_scale=8.0))
    )
    for number, (x, y) in enumerate(BATCHES):
        if number == 2:
            graph(x * float("nan"), y)
        graph(x, y)
    same_state(eager, model, 1e-6)


def test_a_scale_that_overflows_float32_falls_until_it_fits():
    model = seeded(MLP)
    graph = TrainGraph(
        model,
        sgd(model),
        settings=scaled(flow.amp.GradScaler(init_scale=2.0**127, growth_factor=2.0**8, backoff_factor=2.0**-8)),
    )
    before = model.layers[3].bias.clone()
    x, y = BATCHES[0]
    for _ in range(5):
        graph(x * 2.0**20, y)
    assert scale_of(graph)[0] < 2.0**127 and not torch.equal(model.layers[3].bias, before)


def test_what_is_no_scaler_is_refused():
    with pytest.raises(
        ArgumentError, match="set_grad_scaler takes flow.amp.GradScaler or flow.amp.StaticGradScaler, got float"
    ):
        TrainGraph(seeded(MLP), sgd(seeded(MLP)), settings=scaled(2.0))
