"""``oneflow.nn.utils``: every function is called once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from oneflow.nn import Linear, utils


def _with_gradient(*values: float) -> torch.Tensor:
    parameter = torch.zeros(len(values), requires_grad=True)
    parameter.grad = torch.tensor(values)
    return parameter


def clip_grad_norm() -> None:
    parameters = [_with_gradient(3.0), _with_gradient(0.0, 4.0)]
    assert float(utils.clip_grad_norm_(parameters, 1.0)) == 5.0
    assert [p.grad.tolist() for p in parameters] == [pytest.approx([0.6]), pytest.approx([0.0, 0.8])]


def clip_grad_value() -> None:
    parameter = _with_gradient(3.0, -0.5, -2.0)
    utils.clip_grad_value_(parameter, 1.0)
    assert parameter.grad.tolist() == [1.0, -0.5, -1.0]


def weight_norm() -> None:
    layer = Linear(3, 2)
    before = layer.weight.detach().clone()
    assert utils.weight_norm(layer) is layer and sorted(layer.state_dict()) == ["bias", "weight_g", "weight_v"]
    layer(torch.ones(1, 3)).sum().backward()
    torch.testing.assert_close(layer.weight, before)
    torch.testing.assert_close(layer.weight_g.grad, (before / before.norm(dim=1, keepdim=True)).sum(1, keepdim=True))


def remove_weight_norm() -> None:
    layer = utils.weight_norm(Linear(3, 2), dim=None)
    assert layer.weight_g.shape == ()
    utils.remove_weight_norm(layer)
    assert sorted(layer.state_dict()) == ["bias", "weight"]


CALLS: dict[str, Callable[[], None]] = {
    "oneflow.nn.utils.clip_grad_norm_": clip_grad_norm,
    "oneflow.nn.utils.clip_grad_value_": clip_grad_value,
    "oneflow.nn.utils.weight_norm": weight_norm,
    "oneflow.nn.utils.remove_weight_norm": remove_weight_norm,
}
