"""Recurrent layers in graphs on ranks compute and train as a loop of plain torch does, in float64."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from global_rank import B, S, spread
from graph_laws import ALL, copies, plain_losses, same, whole
from torch import Tensor, nn

import oneflow as flow

FEATURES, HIDDEN, CLASSES, LENGTH, STEPS = 5, 4, 3, 3, 3


class Sequence(nn.Module):
    """A recurrent layer over the whole of a sequence, and a classifier of its last output."""

    def __init__(self, kind: Callable[..., nn.Module], **options: Any) -> None:
        super().__init__()
        self.body = kind(FEATURES, HIDDEN, batch_first=True, **options)
        self.head = nn.Linear(HIDDEN * (2 if options.get("bidirectional") else 1), CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x)[0][:, -1])


class Cells(nn.Module):
    """A recurrent cell, called once for each place of a sequence."""

    def __init__(self, kind: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.cell, self.head = kind(FEATURES, HIDDEN), nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        state = None
        for place in x.unbind(1):
            state = self.cell(place, state)
        return self.head(state[0] if isinstance(state, tuple) else state)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "LSTM": lambda: Sequence(nn.LSTM),
    "LSTM of two layers, both ways": lambda: Sequence(nn.LSTM, num_layers=2, bidirectional=True),
    "GRU": lambda: Sequence(nn.GRU),
    "GRU of two layers, both ways": lambda: Sequence(nn.GRU, num_layers=2, bidirectional=True),
    "RNN of two layers, both ways": lambda: Sequence(nn.RNN, num_layers=2, bidirectional=True),
    "RNN with relu": lambda: Sequence(nn.RNN, nonlinearity="relu"),
    "LSTM cell": lambda: Cells(nn.LSTMCell),
    "GRU cell": lambda: Cells(nn.GRUCell),
    "RNN cell": lambda: Cells(nn.RNNCell),
}


class Train(flow.nn.Graph):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))

    def build(self, x: Tensor, y: Tensor) -> Tensor:
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        return loss


def check(batch: int, inputs: Any) -> None:
    """Asserts that some steps of every model, with their losses and parameters, are those of plain torch."""
    for name, make in MODELS.items():
        torch.manual_seed(3)
        alone = make().double()
        model = copy.deepcopy(alone)
        data = [(torch.randn(batch, LENGTH, FEATURES).double(), torch.randint(CLASSES, (batch,))) for _ in range(STEPS)]
        expected = plain_losses(alone, data)
        copies(model)
        graph = Train(model)
        found = [whole(graph(spread(x, ALL, inputs), spread(y, ALL, inputs))) for x, y in data]
        torch.testing.assert_close(
            found, expected, rtol=1e-10, atol=1e-10, msg=lambda text, name=name: f"{name}: {text}"
        )
        same(model, alone, 1e-10)


def law_recurrent_layers_train_on_a_batch_that_is_split() -> None:
    check(8, S(0))


def law_recurrent_layers_train_on_a_batch_that_is_split_unevenly() -> None:
    check(7, S(0))


def law_recurrent_layers_train_on_a_batch_that_every_rank_has() -> None:
    check(4, B)
