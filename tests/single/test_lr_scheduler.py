"""The schedulers of ``flow.optim.lr_scheduler``: thirty steps of each against its formula, state saved and loaded, and
what they refuse."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from oneflow import optim
from oneflow.optim import lr_scheduler as sched

STEPS = 30
BASES = (0.4, 0.05)


def optimizer(kind: Callable[..., Any] = optim.SGD, bases: tuple[float, ...] = BASES) -> Any:
    return kind([{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": lr} for lr in bases], lr=1.0)


@dataclass(frozen=True)
class Case:
    """A scheduler of an optimizer, and its rate as a formula of base rate and step."""

    make: Callable[[Any], Any]
    formula: Callable[[float, int], float]


def half_cosine(part: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * part))


def restarts(b: float, t: int, sizes: list[int], low: float = 0.0, decay: float = 1.0, limit: int = 0) -> float:
    """Periods of these sizes, one after the other."""
    for i, size in enumerate(sizes):
        if t < size:
            return low if limit and i >= limit else low + (b * decay**i - low) * half_cosine(t / size)
        t -= size
    raise AssertionError("too few periods")


def line(b: float, t: int, factor: float, steps: int, end: float) -> float:
    return b * factor + (end - b * factor) * t / steps


CASES: dict[str, Case] = {
    "ConstantLR": Case(lambda o: sched.ConstantLR(o, 0.25, 7), lambda b, t: b * 0.25 if t < 7 else b),
    "ConstantLR default": Case(lambda o: sched.ConstantLR(o), lambda b, t: b / 3 if t < 5 else b),
    "LinearLR": Case(lambda o: sched.LinearLR(o, 0.2, 0.8, 10), lambda b, t: b * (0.2 + 0.6 * min(t, 10) / 10)),
    "LinearLR default": Case(lambda o: sched.LinearLR(o), lambda b, t: b * (1 / 3 + 2 / 3 * min(t, 5) / 5)),
    "StepLR": Case(lambda o: sched.StepLR(o, 4, 0.5), lambda b, t: b * 0.5 ** (t // 4)),
    "MultiStepLR": Case(
        lambda o: sched.MultiStepLR(o, [12, 3], 0.5), lambda b, t: b * (1 if t < 3 else 0.5 if t < 12 else 0.25)
    ),
    "ExponentialLR": Case(lambda o: sched.ExponentialLR(o, 0.9), lambda b, t: b * 0.9**t),
    "LambdaLR": Case(lambda o: sched.LambdaLR(o, lambda t: 1 / (1 + t)), lambda b, t: b / (1 + t)),
    "LambdaLR of each": Case(
        lambda o: sched.LambdaLR(o, [lambda t: 1 / (1 + t), lambda t: 0.9**t]),
        lambda b, t: b / (1 + t) if b == BASES[0] else b * 0.9**t,
    ),
    "PolynomialLR": Case(
        lambda o: sched.PolynomialLR(o, 20, 0.01, 2.0), lambda b, t: (b - 0.01) * (1 - min(t, 20) / 20) ** 2 + 0.01
    ),
    "PolynomialLR cycle": Case(
        lambda o: sched.PolynomialLR(o, 8, 0.001, cycle=True),
        lambda b, t: (b - 0.001) * (1 - t / (8 * max(1, math.ceil(t / 8)))) + 0.001,
    ),
    "CosineDecayLR": Case(
        lambda o: sched.CosineDecayLR(o, 20, 0.1),
        lambda b, t: b * (0.9 * half_cosine(t / 20) + 0.1) if t < 20 else b * 0.1,
    ),
    "CosineAnnealingLR": Case(
        lambda o: sched.CosineAnnealingLR(o, 10, 0.01), lambda b, t: 0.01 + (b - 0.01) * half_cosine(t / 10)
    ),
    "CosineAnnealingWarmRestarts": Case(
        lambda o: sched.CosineAnnealingWarmRestarts(o, 7), lambda b, t: restarts(b, t, [7] * 5)
    ),
    "CosineAnnealingWarmRestarts longer": Case(
        lambda o: sched.CosineAnnealingWarmRestarts(o, 3, 2, 0.01, 0.5),
        lambda b, t: restarts(b, t, [3, 6, 12, 24], 0.01, 0.5),
    ),
    "CosineAnnealingWarmRestarts limited": Case(
        lambda o: sched.CosineAnnealingWarmRestarts(o, 4, eta_min=0.01, restart_limit=3),
        lambda b, t: restarts(b, t, [4] * 8, 0.01, limit=3),
    ),
    "SequentialLR": Case(
        lambda o: sched.SequentialLR(
            o, [sched.ConstantLR(o, 0.1, 100), sched.ExponentialLR(o, 0.9), sched.StepLR(o, 3)], [5, 12]
        ),
        lambda b, t: b * 0.1 if t < 5 else b * 0.9**t if t < 12 else b * 0.1 ** (t // 3),
    ),
    "SequentialLR rescaled": Case(
        lambda o: sched.SequentialLR(
            o, [sched.LinearLR(o, 0.1, 1.0, 5), sched.ExponentialLR(o, 0.9)], [5], interval_rescaling=True
        ),
        lambda b, t: b * (0.1 + 0.9 * t / 5) if t < 5 else b * 0.9 ** (t - 5),
    ),
    "SequentialLR rescaled in part": Case(
        lambda o: sched.SequentialLR(
            o,
            [sched.ConstantLR(o, 0.1, 100), sched.ExponentialLR(o, 0.9), sched.ExponentialLR(o, 0.8)],
            [5, 9],
            [False, False, True],
        ),
        lambda b, t: b * 0.1 if t < 5 else b * 0.9**t if t < 9 else b * 0.8 ** (t - 9),
    ),
    "WarmUpLR of an optimizer": Case(lambda o: sched.WarmUpLR(o), lambda b, t: line(b, t, 1 / 3, 5, b) if t < 5 else b),
    "WarmUpLR constant": Case(lambda o: sched.WarmUpLR(o, 0.2, 6, "constant"), lambda b, t: b * 0.2 if t < 6 else b),
    "WarmUpLR none": Case(
        lambda o: sched.WarmUpLR(sched.ExponentialLR(o, 0.9), warmup_iters=0), lambda b, t: b * 0.9**t
    ),
    "WarmUpLR linear": Case(
        lambda o: sched.WarmUpLR(sched.CosineDecayLR(o, 20), 0.1, 8),
        lambda b, t: line(b, t, 0.1, 8, b * half_cosine(8 / 20)) if t < 8 else b * half_cosine(min(t, 20) / 20),
    ),
    "WarmUpLR of milestones": Case(
        lambda o: sched.WarmUpLR(sched.MultiStepLR(o, [4, 12]), 0.5, 8),
        lambda b, t: line(b, t, 0.5, 8, b * 0.1) if t < 8 else b * (0.1 if t < 12 else 0.01),
    ),
    "WarmUpLR prefix": Case(
        lambda o: sched.WarmupLR(sched.CosineAnnealingLR(o, 20, 0.01), 0.1, 8, warmup_prefix=True),
        lambda b, t: line(b, t, 0.1, 8, b) if t < 8 else 0.01 + (b - 0.01) * half_cosine((t - 8) / 20),
    ),
    "ChainedScheduler": Case(
        lambda o: sched.ChainedScheduler([sched.ConstantLR(o, 0.1, 2), sched.ExponentialLR(o, 0.9)]),
        lambda b, t: b * (0.1 if t < 2 else 1) * 0.9**t,
    ),
    "ChainedScheduler of a warm-up": Case(
        lambda o: sched.ChainedScheduler(
            [sched.WarmUpLR(o, 0.5, 4), sched.LambdaLR(o, [lambda t: 0.9**t, lambda t: 0.8**t])]
        ),
        lambda b, t: (line(b, t, 0.5, 4, b) if t < 4 else b) * (0.9 if b == BASES[0] else 0.8) ** t,
    ),
}


def expected(case: Case, t: int) -> list[float]:
    return [case.formula(b, t) for b in BASES]


def rates(made: Any) -> list[float]:
    return [group["lr"] for group in made.param_groups]


def test_every_scheduler_has_a_case():
    others = {"LRScheduler", "ReduceLROnPlateau", "WarmupLR"}
    assert {name.split()[0] for name in CASES} == set(sched.__all__) - others
    assert sched._LRScheduler is sched.LRScheduler and sched.WarmupLR is sched.WarmUpLR


@pytest.mark.parametrize("kind", [optim.SGD, torch.optim.SGD])
@pytest.mark.parametrize("name", CASES)
def test_thirty_steps_are_those_of_the_formula(name, kind):
    trained = optimizer(kind)
    scheduler = CASES[name].make(trained)
    for t in range(STEPS):
        assert scheduler.last_step == t
        np.testing.assert_allclose(rates(trained), expected(CASES[name], t), rtol=1e-12)
        assert scheduler.get_last_lr() == rates(trained)
        scheduler.step()


@pytest.mark.parametrize("name", CASES)
def test_a_rate_is_a_pure_function_of_the_step(name):
    trained = optimizer()
    scheduler = CASES[name].make(trained)
    before, last = rates(trained), scheduler.last_step
    assert scheduler.is_function_of_step
    for t in (17, 3, 29, 0):
        np.testing.assert_allclose(scheduler.rates(t), expected(CASES[name], t), rtol=1e-12)
        assert scheduler.get_lr(BASES[0], t) == scheduler.rates(t)[0]
    assert rates(trained) == before and scheduler.last_step == last


@pytest.mark.parametrize("name", CASES)
def test_saved_and_loaded_goes_on(name):
    trained = optimizer()
    scheduler = CASES[name].make(trained)
    for _ in range(11):
        scheduler.step()
    assert "optimizer" not in scheduler.state_dict()
    file = io.BytesIO()
    torch.save(scheduler.state_dict(), file)
    file.seek(0)
    other = optimizer()
    loaded = CASES[name].make(other)
    loaded.load_state_dict(torch.load(file, weights_only=True))
    assert loaded.last_step == 11 and loaded.get_last_lr() == scheduler.get_last_lr()
    for t in range(12, STEPS):
        loaded.step()
        np.testing.assert_allclose(rates(other), expected(CASES[name], t), rtol=1e-12)


def test_what_is_loaded_holds_over_what_was_given():
    scheduler = sched.StepLR(optimizer(), 4, 0.5)
    scheduler.load_state_dict(sched.StepLR(optimizer(), 2, 0.1).state_dict())
    assert (scheduler.step_size, scheduler.gamma) == (2, 0.1)


def test_functions_are_not_part_of_a_state_and_other_callables_are_by_their_attributes():
    class Falling:
        def __init__(self, by):
            self.by = by

        def __call__(self, step):
            return self.by**step

    scheduler = sched.LambdaLR(optimizer(), [Falling(0.5), lambda t: 1.0])
    assert scheduler.state_dict()["lr_lambdas"] == [{"by": 0.5}, None]
    assert sched.LambdaLR(optimizer(), math.cos).state_dict()["lr_lambdas"] == [None, None]
    other = sched.LambdaLR(optimizer(), [Falling(0.9), lambda t: 1.0])
    other.load_state_dict(scheduler.state_dict())
    other.step()
    assert other.get_last_lr() == [0.2, 0.05]


def test_going_on_from_a_step_without_a_state():
    trained = optimizer()
    sched.ExponentialLR(trained, 0.9)
    later = sched.ExponentialLR(trained, 0.9, last_step=9)
    assert later.last_step == 10 and rates(trained) == [b * 0.9**10 for b in BASES]


def test_a_rate_in_a_tensor_is_changed_in_place():
    rate = torch.tensor(0.5)
    trained = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=rate)
    scheduler = sched.ExponentialLR(trained, 0.5)
    scheduler.step()
    assert trained.param_groups[0]["lr"] is rate and rate.item() == 0.25


def test_a_verbose_scheduler_prints_its_rates(capsys):
    sched.StepLR(optimizer(), 1, 0.5, verbose=True).step()
    assert capsys.readouterr().out.splitlines()[2] == "step 1: the rate of parameter group 0 is 2.0000e-01"


def test_a_scheduler_of_one_s_own_gives_a_formula():
    class Root(sched.LRScheduler):
        def get_lr(self, base_lr, step):
            return base_lr / math.sqrt(1 + step)

    scheduler = Root(optimizer())
    scheduler.step()
    assert scheduler.get_last_lr() == [b / math.sqrt(2) for b in BASES]
    with pytest.raises(NotImplementedError, match=r"LRScheduler has no formula; override get_lr\(base_lr, step\)"):
        sched.LRScheduler(optimizer())


# ------------------------------------------------------------------------------------------------------------- plateaus


def test_rates_fall_when_the_metric_does_not_become_better(capsys):
    trained = optimizer()
    scheduler = sched.ReduceLROnPlateau(trained, factor=0.5, patience=2, cooldown=1, min_lr=[0.2, 0.0], verbose=True)
    assert not scheduler.is_function_of_step and rates(trained) == list(BASES)
    seen = []
    for metric in (1.0, 0.9, 0.95, 0.91, torch.tensor(0.92), 0.93, 0.9, 0.9, 0.9, 0.9, 0.9):
        scheduler.step(metric)
        seen.append(rates(trained)[1])
    assert seen == [0.05] * 4 + [0.025] * 4 + [0.0125] * 3
    assert rates(trained)[0] == 0.2 and scheduler.get_last_lr() == rates(trained) and scheduler.last_step == 11
    assert capsys.readouterr().out.splitlines()[0] == "step 5: the rates are [0.2, 0.025]"


def test_the_state_of_a_plateau_is_saved_and_loaded():
    metrics = [1.0, 0.5, 0.6, 0.7, 0.8, 0.4, 0.5, 0.5, 0.5]
    straight = optimizer()
    scheduler = sched.ReduceLROnPlateau(straight, mode="max", threshold_mode="abs", patience=1)
    for metric in metrics:
        scheduler.step(metric)
    first, second = optimizer(), optimizer()
    before, after = (sched.ReduceLROnPlateau(o, mode="max", threshold_mode="abs", patience=1) for o in (first, second))
    for metric in metrics[:4]:
        before.step(metric)
    after.load_state_dict(before.state_dict())
    for group, rate in zip(second.param_groups, rates(first)):
        group["lr"] = rate
    for metric in metrics[4:]:
        after.step(metric)
    assert rates(second) == rates(straight) != list(BASES)


# ----------------------------------------------------------------------------------------------------------------
# errors


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda o: sched.StepLR("sgd", 3), "a scheduler takes an optimizer of flow.optim or torch.optim, got str"),
        (
            lambda o: sched.ReduceLROnPlateau("sgd"),
            "a scheduler takes an optimizer of flow.optim or torch.optim, got str",
        ),
        (lambda o: sched.LambdaLR("sgd", abs), "a scheduler takes an optimizer of flow.optim or torch.optim, got str"),
        (lambda o: sched.WarmUpLR("sgd"), "WarmUpLR takes a scheduler or an optimizer, got str"),
        (lambda o: sched.StepLR(o, 0), "step_size is an int > 0, got 0"),
        (lambda o: sched.StepLR(o, 3, last_step=-2), "last_step is an int >= -1, got -2"),
        (
            lambda o: sched.StepLR(o, 3, last_step=4),
            "to go on after last_step=4, parameter group 0 of the optimizer needs its 'initial_lr'",
        ),
        (lambda o: sched.MultiStepLR(o, 3), "milestones is a list of numbers, got 3"),
        (lambda o: sched.ConstantLR(o, 1.5), "factor is a number >= 0 and <= 1, got 1.5"),
        (lambda o: sched.LinearLR(o, total_iters=0), "total_iters is an int > 0, got 0"),
        (lambda o: sched.PolynomialLR(o, 0), "decay_batch is an int > 0, got 0"),
        (lambda o: sched.CosineDecayLR(o, 0), "decay_steps is an int > 0, got 0"),
        (lambda o: sched.CosineAnnealingLR(o, -1), "T_max is an int > 0, got -1"),
        (lambda o: sched.CosineAnnealingWarmRestarts(o, 5, 0), "T_mult is an int > 0, got 0"),
        (
            lambda o: sched.LambdaLR(o, [abs]),
            "lr_lambda is one function or one for each of the 2 parameter groups, got 1",
        ),
        (lambda o: sched.LambdaLR(o, 0.9), "lr_lambda is a function of the step, or a list of them, got 0.9"),
        (
            lambda o: sched.WarmUpLR(o, warmup_method="cosine"),
            r"warmup_method is one of \['linear', 'constant'\], got 'cosine'",
        ),
        (lambda o: sched.WarmUpLR(o, 2.0), "warmup_factor is a number >= 0 and <= 1, got 2.0"),
        (lambda o: sched.SequentialLR(o, [], []), r"schedulers is a list of schedulers, got \[\]"),
        (
            lambda o: sched.SequentialLR(o, [sched.StepLR(o, 3)], [4]),
            r"1 schedulers have 0 rising milestones between them, got \[4\]",
        ),
        (
            lambda o: sched.SequentialLR(o, [sched.StepLR(o, 3)] * 3, [4, 2]),
            "3 schedulers have 2 rising milestones between them",
        ),
        (
            lambda o: sched.SequentialLR(o, [sched.StepLR(o, 3)] * 2, [4], [True]),
            "interval_rescaling is True, False or one of them for each of the 2",
        ),
        (
            lambda o: sched.SequentialLR(o, [sched.StepLR(optimizer(), 3)], []),
            "all schedulers set the rates of one optimizer",
        ),
        (
            lambda o: sched.ChainedScheduler([sched.ReduceLROnPlateau(o)]),
            "schedulers with a formula of the step, got ReduceLROnPlateau among them",
        ),
        (
            lambda o: sched.ChainedScheduler([sched.StepLR(o, 3), sched.StepLR(optimizer(), 3)]),
            "all schedulers set the rates of one optimizer",
        ),
        (
            lambda o: sched.ReduceLROnPlateau(o, "low"),
            "mode is 'min' or 'max' and threshold_mode 'rel' or 'abs', got 'low' and 'rel'",
        ),
        (lambda o: sched.ReduceLROnPlateau(o, factor=1.0), "factor is a number >= 0 and < 1, got 1.0"),
        (
            lambda o: sched.StepLR(o, 3).load_state_dict({"gamma": 1}),
            "this state of a scheduler has no .*, so it is not one of StepLR",
        ),
        (
            lambda o: sched.ChainedScheduler([sched.StepLR(o, 3)]).load_state_dict(sched.StepLR(o, 3).state_dict()),
            "this state of a scheduler is not one of ChainedScheduler of 1 schedulers",
        ),
    ],
)
def test_what_schedulers_refuse(make, message):
    with pytest.raises(ValueError, match=message):
        make(optimizer())
