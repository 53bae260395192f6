"""FastNN's learning rates: at every step as the formulas say, and where TensorFlow gave numbers, those."""

from __future__ import annotations

import math

import pytest
import torch

from fastnn.flags import TABLE, FlagError, Flags
from fastnn.optimizers import create
from fastnn.schedules import learning_rate
from fastnn.utils.optimizer_utils import FlagSchedule

# What TensorFlow gave, for a first rate of 0.01.
TENSORFLOW = [
    (
        {"warmup_steps": 10, "decay_scheme": "luong234", "stop_at_step": 100},
        {
            0: 1e-4,
            1: 1.58489e-4,
            5: 1e-3,
            9: 6.30957e-3,
            10: 0.01,
            73: 0.01,
            74: 0.0094,
            82: 0.008836,
            90: 0.0083058,
            98: 0.0078075,
        },
    ),
    (
        {"warmup_steps": 10, "decay_scheme": "luong234", "stop_at_step": 100, "learning_rate_decay_factor": 0.5},
        {74: 0.005, 82: 0.0025, 90: 0.00125, 98: 0.000625},
    ),
    (
        {"decay_scheme": "luong5", "stop_at_step": 100, "learning_rate_decay_factor": 0.5},
        {50: 0.01, 59: 0.01, 60: 0.005, 70: 0.0025, 80: 0.00125, 90: 0.000625, 99: 0.000625},
    ),
    (
        {"decay_scheme": "luong10", "stop_at_step": 100, "learning_rate_decay_factor": 0.5},
        {
            55: 0.005,
            60: 0.0025,
            65: 0.00125,
            70: 6.25e-4,
            75: 3.125e-4,
            80: 1.5625e-4,
            85: 7.8125e-5,
            90: 3.90625e-5,
            95: 1.953125e-5,
        },
    ),
    ({"decay_scheme": "luong10", "stop_at_step": 103}, {50: 0.01, 56: 0.0094, 61: 0.008836}),
    (
        {"warmup_steps": 10, "decay_scheme": "luong5", "stop_at_step": 100, "learning_rate_decay_type": "polynomial"},
        {50: 0.01, 51: 0.00901, 59: 0.00109, 60: 1e-4, 99: 1e-4},
    ),
    ({}, {0: 0.01, 99: 0.01}),
    ({"luong_halving": True, "decay_scheme": "luong5", "stop_at_step": 100}, {59: 0.01, 60: 0.005, 90: 0.000625}),
]


@pytest.mark.parametrize(("flags", "rates"), TENSORFLOW)
def test_rates_are_tensorflows(flags, rates):
    for step, rate in rates.items():
        assert learning_rate(step, **flags) == pytest.approx(rate, rel=2e-5)


@pytest.mark.parametrize("kind", ["exponential", "polynomial", "fixed"])
@pytest.mark.parametrize("scheme", ["", "luong234", "luong5", "luong10"])
def test_the_rate_of_every_step_is_the_formula(kind, scheme):
    n, w, base, factor, end = 100, 7, 0.3, 0.8, 0.01
    start = {"": n, "luong234": int(2 * n / 3), "luong5": n // 2, "luong10": n // 2}[scheme]
    interval = int((n - start) / {"": 1, "luong234": 4, "luong5": 5, "luong10": 10}[scheme])
    for step in range(n):
        warm = base * math.exp(math.log(0.01) * (w - step) / w) if step < w else base
        if kind == "fixed":
            expected = base
        elif step < start:
            expected = warm
        elif kind == "exponential":
            expected = warm * factor ** math.floor((step - start) / interval)
        else:
            expected = (warm - end) * (1 - min(step - start, interval) / interval) + end
        found = learning_rate(
            step, learning_rate=base, warmup_steps=w, decay_scheme=scheme, stop_at_step=n, learning_rate_decay_factor=factor,
            learning_rate_decay_type=kind, end_learning_rate=end,
        )  # fmt: skip
        assert found == pytest.approx(expected, rel=1e-12)


def test_any_other_warm_up_scheme_is_none():
    assert learning_rate(0, warmup_steps=10, warmup_scheme="none") == 0.01


def test_the_scheduler_of_a_graph_follows_it():
    flags = Flags(TABLE)
    flags.parse(["--warmup_steps=5", "--decay_scheme=luong5", "--stop_at_step=20", "--learning_rate_decay_factor=0.5"])
    schedule = FlagSchedule(create("sgd", [torch.nn.Parameter(torch.zeros(1))], 1.0), flags)
    for step in range(20):
        assert schedule.rates(step) == [learning_rate(step, **flags.values())]
        assert schedule.optimizer.param_groups[0]["lr"] == schedule.rates(step)[0]
        schedule.step()
    again = FlagSchedule(create("sgd", [torch.nn.Parameter(torch.zeros(1))], 1.0), flags)
    again.load_state_dict(schedule.state_dict())
    assert again.get_last_lr() == schedule.get_last_lr()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"decay_scheme": "luong"}, "--decay_scheme is one of"),
        ({"learning_rate_decay_type": "linear"}, "--learning_rate_decay_type is one of"),
        ({"warmup_steps": -1}, "--warmup_steps is at least 0, got -1"),
        ({"warmup_step": 3}, "the learning rate has no flag 'warmup_step'. Did you mean 'warmup_steps'?"),
    ],
)
def test_wrong_flags(flags, message):
    with pytest.raises(FlagError) as error:
        learning_rate(0, **flags)
    assert message in str(error.value)
