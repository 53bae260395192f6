"""``oneflow.optim.lr_scheduler``: the first rates of each, from a base rate of 1."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from oneflow.optim import SGD, lr_scheduler


def _rates(name: str, *args: Any, **options: Any) -> list[float]:
    """The rates of the steps 0, 1 and 2."""
    optimizer = SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = getattr(lr_scheduler, name)(optimizer, *args, **options)
    return _followed(optimizer, scheduler)


def _followed(optimizer: SGD, scheduler: Any) -> list[float]:
    found = [optimizer.param_groups[0]["lr"]]
    for _ in range(2):
        scheduler.step()
        found.append(optimizer.param_groups[0]["lr"])
    return found


def _is(name: str, want: list[float], *args: Any, **options: Any) -> Callable[[], None]:
    def call() -> None:
        assert _rates(name, *args, **options) == pytest.approx(want)

    return call


def _chained() -> None:
    optimizer = SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    chained = lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(optimizer, 0.1, 2), lr_scheduler.ExponentialLR(optimizer, 0.9)]
    )
    assert _followed(optimizer, chained) == pytest.approx([0.1, 0.09, 0.81])


def _sequential() -> None:
    for rescaling, third in ((False, 0.25), (True, 1.0)):
        optimizer = SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        parts = [lr_scheduler.ConstantLR(optimizer, 0.1, 9), lr_scheduler.ExponentialLR(optimizer, 0.5)]
        made = lr_scheduler.SequentialLR(optimizer, parts, [2], interval_rescaling=rescaling)
        assert _followed(optimizer, made) == pytest.approx([0.1, 0.1, third])


def _plateau() -> None:
    optimizer = SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    scheduler.step(1.0)
    assert optimizer.param_groups[0]["lr"] == 1.0
    scheduler.step(1.0)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1)


_NAME = "oneflow.optim.lr_scheduler"
CALLS = {
    f"{_NAME}.ChainedScheduler": _chained,
    f"{_NAME}.ConstantLR": _is("ConstantLR", [0.5, 0.5, 1.0], 0.5, 2),
    f"{_NAME}.CosineAnnealingLR": _is("CosineAnnealingLR", [1.0, 0.55, 0.1], 2, eta_min=0.1),
    f"{_NAME}.CosineAnnealingWarmRestarts": _is("CosineAnnealingWarmRestarts", [1.0, 0.5, 0.8], 2, decay_rate=0.8),
    f"{_NAME}.CosineDecayLR": _is("CosineDecayLR", [1.0, 0.55, 0.1], 2, alpha=0.1),
    f"{_NAME}.ExponentialLR": _is("ExponentialLR", [1.0, 0.9, 0.81], 0.9),
    f"{_NAME}.LambdaLR": _is("LambdaLR", [1.0, 1 / math.e, 1 / math.e**2], lambda t: math.exp(-t)),
    f"{_NAME}.LinearLR": _is("LinearLR", [0.2, 0.6, 1.0], 0.2, 1.0, 2),
    f"{_NAME}.MultiStepLR": _is("MultiStepLR", [1.0, 0.1, 0.01], [1, 2]),
    f"{_NAME}.PolynomialLR": _is("PolynomialLR", [1.0, 0.25, 0.0], 2, 0.0, 2.0),
    f"{_NAME}.ReduceLROnPlateau": _plateau,
    f"{_NAME}.SequentialLR": _sequential,
    f"{_NAME}.StepLR": _is("StepLR", [1.0, 1.0, 0.1], 2),
    f"{_NAME}.WarmUpLR": _is("WarmUpLR", [0.2, 0.6, 1.0], 0.2, 2),
    f"{_NAME}.WarmupLR": _is("WarmupLR", [0.2, 0.2, 1.0], 0.2, 2, "constant"),
}
