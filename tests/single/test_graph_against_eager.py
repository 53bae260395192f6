"""Networks trained in an ``nn.Graph``: twenty steps have the losses, and leave the parameters and buffers, of the eager
loop."""

from __future__ import annotations

import pytest
import torch
from graph_models import MODELS, EvalGraph, TrainGraph, eager_losses, same_state, seeded, sgd

import oneflow as flow
import oneflow.nn as nn

STEPS = 20


@pytest.mark.parametrize("name", MODELS)
def test_twenty_steps_have_the_losses_of_the_eager_loop(name):
    case = MODELS[name]
    eager, model = seeded(case.model), seeded(case.model)
    expected = eager_losses(eager, sgd(eager), case.batches(STEPS))
    graph = TrainGraph(model, sgd(model))
    losses = [graph(x, y).item() for x, y in case.batches(STEPS)]
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-5)
    assert len(set(losses)) == STEPS
    same_state(eager, model, 1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_an_evaluation_graph_gives_what_the_module_gives(name):
    case = MODELS[name]
    model = seeded(case.model).eval()
    graph = EvalGraph(model)
    for x, _ in case.batches(2):
        with flow.no_grad():
            torch.testing.assert_close(graph(x), model(x), rtol=1e-5, atol=1e-5)


def test_channels_last_modules_and_inputs_give_the_same():
    case = MODELS["LeNet"]
    eager, model = seeded(case.model).double(), seeded(case.model).double().to(memory_format=torch.channels_last)
    expected = [eager_losses(eager, sgd(eager), iter([(x.double(), y)]))[0] for x, y in case.batches(1)]
    graph = TrainGraph(model, sgd(model))
    losses = [graph(x.double().contiguous(memory_format=torch.channels_last), y).item() for x, y in case.batches(1)]
    torch.testing.assert_close(losses, expected, rtol=1e-9, atol=1e-9)
    same_state(eager, model, 1e-9)


def test_a_model_written_for_torch_trains():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
            self.encoder, self.head = (
                torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
                torch.nn.Linear(8, 4),
            )

        def forward(self, x):
            return self.head(self.encoder(x).mean(1))

    eager, model = seeded(Net), seeded(Net)
    expected = eager_losses(eager, sgd(eager), MODELS["LSTM"].batches(5))
    graph = TrainGraph(model, sgd(model))
    torch.testing.assert_close(
        [graph(x, y).item() for x, y in MODELS["LSTM"].batches(5)], expected, rtol=1e-5, atol=1e-5
    )


def test_modes_are_those_of_the_first_call():
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
    graph = EvalGraph(model.eval())
    x = torch.randn(5, 8)
    first = graph(x)
    model.train()
    assert torch.equal(graph(x), first) and int(model[1].num_batches_tracked) == 0
