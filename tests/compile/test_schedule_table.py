"""Every row of the tables of schedules and warm-ups, in both forms, against its formula written out once more in plain
Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from oneflow import optimizer as opt
from oneflow.optimizer.conf import optimizer_from_conf
from oneflow.optimizer.schedule import LrScheduler
from oneflow.optimizer.table import SCHEDULES, WARMUPS

T, RATE, BASE = 10, 0.7, 0.3
STEPS = (*range(45), 99, 100, 101, 250, 1000, 12345)
Formula = Callable[[int], float]


@dataclass(frozen=True)
class Case:
    """A schedule with numbers of its own; ``conf`` is what its dictionary form holds, None where there is none."""

    numbers: tuple[Any, ...]
    formula: Formula
    conf: dict[str, Any] | None


def cosine(alpha: float = 0.0) -> Formula:
    return lambda t: BASE * ((1 - alpha) * (1 + math.cos(math.pi * min(t, T) / T)) / 2 + alpha)


def linear_cosine(periods: float = 0.5, alpha: float = 0.0, beta: float = 0.001) -> Formula:
    def formula(t: int) -> float:
        t = min(t, T)
        return BASE * ((alpha + (T - t) / T) * (1 + math.cos(2 * math.pi * periods * t / T)) / 2 + beta)

    return formula


def polynomial(end: float = 0.0001, power: float = 1.0, cycle: bool = False) -> Formula:
    def formula(t: int) -> float:
        last = T * math.ceil((t or 1) / T) if cycle else T
        return (BASE - end) * (1 - min(t, last) / last) ** power + end

    return formula


def decaying(formula: Callable[[float], float]) -> dict[str, Case]:
    """A formula of the periods gone by, whole or not."""
    conf = {"decay_batches": T, "decay_rate": RATE}
    return {
        "plain": Case((BASE, T, RATE), lambda t: formula(t / T), conf),
        "staircase": Case((BASE, T, RATE, True), lambda t: formula(t // T), conf | {"staircase": True}),
    }


_VALUES = [1.0, 0.5, 0.25, 0.125]
CASES: dict[str, dict[str, Case]] = {
    "ConstantScheduler": {"plain": Case((BASE,), lambda t: BASE, None)},
    "ExponentialScheduler": decaying(lambda periods: BASE * RATE**periods),
    "InverseTimeScheduler": decaying(lambda periods: BASE / (1 + RATE * periods)),
    "NaturalExpScheduler": decaying(lambda periods: BASE * math.exp(-RATE * periods)),
    "PiecewiseConstantScheduler": {
        "of one": Case(([], [BASE]), lambda t: BASE, {"boundaries": [], "values": [BASE]}),
        "plain": Case(
            ([2, 10, 20], _VALUES),
            lambda t: 1.0 if t <= 2 else 0.5 if t <= 10 else 0.25 if t <= 20 else 0.125,
            {"boundaries": [2, 10, 20], "values": _VALUES},
        ),
    },
    "PiecewiseScalingScheduler": {
        "plain": Case(
            (BASE, [2, 10], [0.1, 0.01]),
            lambda t: BASE * (1 if t <= 2 else 0.1 if t <= 10 else 0.01),
            {"boundaries": [2, 10], "scales": [1, 0.1, 0.01]},
        )
    },
    "PolynomialScheduler": {
        "plain": Case((BASE, T), polynomial(), {"decay_batches": T}),
        "power": Case(
            (BASE, T, 0.01, 2.0), polynomial(0.01, 2.0), {"decay_batches": T, "end_learning_rate": 0.01, "power": 2.0}
        ),
        "cycle": Case(
            (BASE, T, 0.01, 1.0, True),
            polynomial(0.01, 1.0, True),
            {"decay_batches": T, "end_learning_rate": 0.01, "cycle": True},
        ),
    },
    "CosineScheduler": {
        "plain": Case((BASE, T), cosine(), {"decay_batches": T}),
        "alpha": Case((BASE, T, 0.2), cosine(0.2), {"decay_batches": T, "alpha": 0.2}),
    },
    "LinearCosineScheduler": {
        "plain": Case((BASE, T), linear_cosine(), {"decay_batches": T}),
        "numbers": Case(
            (BASE, T, 1.5, 0.1, 0.02),
            linear_cosine(1.5, 0.1, 0.02),
            {"decay_batches": T, "num_periods": 1.5, "alpha": 0.1, "beta": 0.02},
        ),
    },
}
# name -> the number of its dictionary form, and the factor of the base rate at a step of so many
WARMING: dict[str, tuple[str, Callable[[int, int], float]]] = {
    "constant": ("multiplier", lambda t, steps: 0.25),
    "linear": ("start_multiplier", lambda t, steps: 0.25 + 0.75 * t / steps),
}
ROWS = {row.name: row for row in SCHEDULES}
STARTS = {row.name: row for row in WARMUPS}
ALL = [(name, kind) for name, row in ROWS.items() if row.is_formula for kind in CASES[name]]


def near(scheduler: LrScheduler, formula: Formula) -> None:
    np.testing.assert_allclose([scheduler.lr(t) for t in STEPS], [formula(t) for t in STEPS], rtol=1e-6, atol=1e-12)


def from_conf(name: str, case: Case, **conf: Any) -> LrScheduler:
    form = ROWS[name].form
    decay = {"learning_rate_decay": {form.key: case.conf}} if form is not None else {}
    return optimizer_from_conf({"naive_conf": {}, **decay, **conf}, BASE).lr_scheduler


def test_every_schedule_and_warm_up_has_a_row() -> None:
    public = {value for value in vars(opt).values() if isinstance(value, type) and issubclass(value, LrScheduler)} - {
        LrScheduler
    }
    assert {row.make for row in SCHEDULES} == public
    assert opt.PolynomialSchduler is opt.PolynomialScheduler
    assert {row.make for row in WARMUPS} == {getattr(opt.warmup, name) for name in opt.warmup.__all__}
    assert {row.name for row in SCHEDULES if row.is_formula} == set(CASES) and set(STARTS) == set(WARMING)


@pytest.mark.parametrize("name, kind", ALL)
def test_schedule(name: str, kind: str) -> None:
    case = CASES[name][kind]
    near(ROWS[name].make(*case.numbers), case.formula)


@pytest.mark.parametrize("name, kind", ALL)
def test_schedule_in_dictionary_form(name: str, kind: str) -> None:
    case = CASES[name][kind]
    assert (case.conf is None) == (ROWS[name].form is None)
    scheduler = from_conf(name, case)
    assert type(scheduler) is ROWS[name].make
    near(scheduler, case.formula)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("name, kind", ALL)
def test_schedule_after_a_warm_up_goes_on_at_the_absolute_step(name: str, kind: str, start: str) -> None:
    case, row = CASES[name][kind], STARTS[start]
    number, factor = WARMING[start]
    conf = from_conf(name, case, warmup_conf={row.form.key: {"warmup_batches": 8, number: 0.25}})
    near(conf, lambda t: BASE * factor(t, 8) if t < 8 else case.formula(t))
    made = ROWS[name].make(*case.numbers, warmup=row.make(8, 0.25))
    first = (
        _VALUES[0] if (name, kind) == ("PiecewiseConstantScheduler", "plain") else BASE
    )  # its class form knows no other base rate
    near(made, lambda t: first * factor(t, 8) if t < 8 else case.formula(t))
