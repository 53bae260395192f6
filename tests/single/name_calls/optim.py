"""``oneflow.optim``: one step of each, worked out by hand."""

from __future__ import annotations

import pytest
import torch

import oneflow.optim


def _moved(name: str, **options: object) -> float:
    """What one step takes off a weight of 2 whose gradient is 3."""
    w = torch.nn.Parameter(torch.full((4,), 2.0))
    optimizer = getattr(oneflow.optim, name)([w], **options)
    (w * 3).sum().backward()
    optimizer.step()
    assert optimizer.step_count == 1
    optimizer.zero_grad()
    assert w.grad is not None and not w.grad.any()
    return 2.0 - w[0].item()


def _adadelta() -> None:
    assert _moved("Adadelta", lr=1.0, rho=0.9, eps=1e-6) == pytest.approx(3 * (1e-6 / (0.9 + 1e-6)) ** 0.5, rel=1e-3)


def _adagrad() -> None:
    assert _moved("Adagrad", lr=0.1) == pytest.approx(0.1, rel=1e-5)
    assert _moved("Adagrad", lr=0.1, initial_accumulator_value=16.0) == pytest.approx(0.1 * 3 / 5, rel=1e-5)


def _adam() -> None:
    assert _moved("Adam", lr=0.1) == pytest.approx(0.1, rel=1e-5)
    assert _moved("Adam", lr=0.1, do_bias_correction=False) == pytest.approx(0.1 * 0.3 / 0.009**0.5, rel=1e-4)


def _adamw() -> None:
    assert _moved("AdamW", lr=0.1, weight_decay=0.5) == pytest.approx(0.1 + 0.1 * 0.5 * 2, rel=1e-5)


def _lamb() -> None:
    assert _moved("LAMB", lr=0.1) == pytest.approx(0.1 * 2 / 1 * 1, rel=1e-5)


def _rmsprop() -> None:
    assert _moved("RMSprop", lr=0.1, alpha=0.75, eps=1.75) == pytest.approx(
        0.1 * 3 / (0.25 * 9 + 1.75) ** 0.5, rel=1e-5
    )


def _sgd() -> None:
    assert _moved("SGD") == pytest.approx(0.003, rel=1e-3)
    assert _moved("SGD", lr=0.1, momentum=0.9, weight_decay=0.5) == pytest.approx(0.1 * (3 + 0.5 * 2), rel=1e-5)


def _optimizer() -> None:
    w = torch.nn.Parameter(torch.ones(2))
    made = oneflow.optim.Optimizer([{"params": [w], "lr": 0.2}], {"lr": 0.1})
    assert made.param_groups[0]["lr"] == 0.2 and made.param_groups[0]["params"] == [w]


CALLS = {
    "oneflow.optim.Adadelta": _adadelta,
    "oneflow.optim.Adagrad": _adagrad,
    "oneflow.optim.Adam": _adam,
    "oneflow.optim.AdamW": _adamw,
    "oneflow.optim.LAMB": _lamb,
    "oneflow.optim.Optimizer": _optimizer,
    "oneflow.optim.RMSprop": _rmsprop,
    "oneflow.optim.SGD": _sgd,
}
