"""``oneflow.nn.Graph``."""

from __future__ import annotations

import contextlib
import io

import pytest
import torch

import oneflow as flow
import oneflow.nn as nn


class _Step(nn.Graph):
    """A weight of 2 and the gradient of its product with the input."""

    def __init__(self, scaler=None, level: int = -1):
        super().__init__()
        self.model = nn.Linear(1, 1, bias=False)
        nn.init.constant_(self.model.to(nn.Module).weight, 2.0)
        self.add_optimizer(flow.optim.SGD(self.model.to(nn.Module).parameters(), lr=0.5))
        self.set_grad_scaler(scaler)
        self.debug(level)

    def build(self, x):
        loss = self.model(x).sum()
        loss.backward()
        return loss

    def weight(self) -> float:
        return self.model.weight.item()


def _add_optimizer() -> None:
    graph = _Step()
    assert graph(torch.full((1, 1), 3.0)).item() == 6.0 and graph.weight() == 0.5


def _build() -> None:
    with pytest.raises(NotImplementedError, match="does not define build"):
        nn.Graph().build()


def _build_graph() -> None:
    graph = _Step()
    graph.build_graph(torch.ones(1, 1))
    assert graph.is_compiled and graph.weight() == 2.0


def _debug() -> None:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        _Step(level=0)(torch.ones(1, 1))
    assert "building" in printed.getvalue()


def _finish() -> None:
    graph = _Step()
    graph.build_graph(torch.ones(1, 1))
    graph.finish_complie_and_init_runtime()
    assert graph(torch.ones(1, 1)).item() == 2.0


def _is_compiled() -> None:
    graph = _Step()
    assert not graph.is_compiled
    graph(torch.ones(1, 1))
    assert graph.is_compiled


def _load_state_dict() -> None:
    one, two = _Step(), _Step()
    one(torch.ones(1, 1))
    two.load_state_dict(one.state_dict())
    assert two.weight() == 1.5 and two.step.item() == 1


def _name() -> None:
    assert _Step().name.startswith("_Step_")


def _set_grad_scaler() -> None:
    graph = _Step(flow.amp.StaticGradScaler(8.0))
    graph(torch.ones(1, 1))
    assert graph.weight() == 1.5


def _state_dict() -> None:
    assert _Step().state_dict()["model"]["weight"].item() == 2.0


def _trace() -> None:
    assert nn.Graph.trace(lambda x: x + 1)(torch.ones(2)).tolist() == [2.0, 2.0]


def _training() -> None:
    assert _Step().training and not nn.Graph().training


CALLS = {
    "oneflow.nn.Graph.add_optimizer": _add_optimizer,
    "oneflow.nn.Graph.build": _build,
    "oneflow.nn.Graph.build_graph": _build_graph,
    "oneflow.nn.Graph.debug": _debug,
    "oneflow.nn.Graph.finish_complie_and_init_runtime": _finish,
    "oneflow.nn.Graph.is_compiled": _is_compiled,
    "oneflow.nn.Graph.load_state_dict": _load_state_dict,
    "oneflow.nn.Graph.name": _name,
    "oneflow.nn.Graph.set_grad_scaler": _set_grad_scaler,
    "oneflow.nn.Graph.state_dict": _state_dict,
    "oneflow.nn.Graph.trace": _trace,
    "oneflow.nn.Graph.training": _training,
}
