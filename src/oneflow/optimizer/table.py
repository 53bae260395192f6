"""The optimizers, schedules and warm-ups that there are, each with its dictionary form in
``train.model_update_conf``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.number import each, number, whole
from oneflow.engine.ops.updates import formulas
from oneflow.engine.ops.updates.rows import UpdateRow
from oneflow.optimizer import schedule, warmup
from oneflow.optimizer.optimizers import LAMB, LARS, SGD, SGDW, Adam, AdamW, LazyAdam, Optimizer, RMSProp
from oneflow.optimizer.schedule import LrScheduler, WarmUp

REQUIRED = object()
"""Stands for the default of a key that a dictionary must have."""


@dataclass(frozen=True)
class Form:
    """A dictionary form: its ``key``, the keys it may hold with their defaults, and what makes the value of them. An
    optimizer's ``build`` takes the schedule and the keys, a schedule's the base rate, the warm-up and the keys, a
    warm-up's the keys.

    ``decays``: an optimizer of this form may have a weight decay.
    """

    key: str
    fields: Mapping[str, Any]
    build: Callable[..., Any]
    decays: bool = True


@dataclass(frozen=True)
class OptimizerRow:
    """An optimizer: its class, the updates it chooses from, its dictionary forms."""

    make: type[Optimizer]
    updates: tuple[UpdateRow, ...]
    forms: tuple[Form, ...] = ()

    @property
    def name(self) -> str:
        return self.make.__name__


@dataclass(frozen=True)
class ScheduleRow:
    """A schedule: its class, and its dictionary form. ``is_formula``: its rate is a formula of the step."""

    make: type[LrScheduler]
    form: Form | None = None
    is_formula: bool = True

    @property
    def name(self) -> str:
        return self.make.__name__


@dataclass(frozen=True)
class WarmUpRow:
    """A warm-up: the function that makes it, and its dictionary form."""

    make: Callable[..., WarmUp]
    form: Form

    @property
    def name(self) -> str:
        return self.make.__name__


def _sgd(scheduler: LrScheduler, beta: float = 0.0) -> SGD:
    return SGD(scheduler, momentum=number("beta", beta, 0, 1))


def _decaying(make: Callable[..., LrScheduler]) -> Callable[..., LrScheduler]:
    """A schedule over so many batches, which classes call steps."""
    return lambda base, start, decay_batches, **numbers: make(base, decay_batches, **numbers, warmup=start)


def _starting(make: Callable[..., WarmUp]) -> Callable[..., WarmUp]:
    """A warm-up over so many batches, likewise."""
    return lambda warmup_batches, **numbers: make(warmup_batches, **numbers)


def _piecewise_constant(base: float, start: WarmUp | None, boundaries: Any, values: Any) -> LrScheduler:
    """The dictionary form warms up from primary_lr; the class form from its first value."""
    result = schedule.PiecewiseConstantScheduler(boundaries, values, start)
    result.base_lr = base
    return result


def _piecewise_scaling(base: float, start: WarmUp | None, boundaries: Any, scales: Any) -> LrScheduler:
    """The dictionary form gives the first scale too; the class form takes it as 1."""
    scales = each("scales", scales, lambda what, value: number(what, value, 0))
    boundaries = each("boundaries", boundaries, whole)
    if len(scales) != len(boundaries) + 1:
        raise ArgumentError(f"{len(boundaries)} boundaries need {len(boundaries) + 1} scales, got {len(scales)}")
    result = schedule.PiecewiseScalingScheduler(base, boundaries, scales[1:], start)
    result.scales = scales
    return result


_BETAS = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}
_DECAYING = {"decay_batches": REQUIRED, "decay_rate": REQUIRED, "staircase": False}
_POLYNOMIAL = {"decay_batches": REQUIRED, "end_learning_rate": 0.0001, "power": 1.0, "cycle": False}
_COSINE = {"decay_batches": REQUIRED, "alpha": 0.0}
_LINEAR_COSINE = {"decay_batches": REQUIRED, "num_periods": 0.5, "alpha": 0.0, "beta": 0.001}

OPTIMIZERS = (
    OptimizerRow(
        SGD,
        (formulas.SGD, formulas.MOMENTUM),
        (Form("naive_conf", {}, _sgd), Form("momentum_conf", {"beta": 0.9}, _sgd)),
    ),
    OptimizerRow(SGDW, (formulas.SGD, formulas.MOMENTUM)),
    OptimizerRow(
        RMSProp,
        (formulas.RMSPROP, formulas.RMSPROP_CENTERED),
        (Form("rmsprop_conf", {"decay_rate": 0.99, "epsilon": 1e-8, "centered": False}, RMSProp, decays=False),),
    ),
    OptimizerRow(
        LARS,
        (formulas.LARS,),
        (Form("lars_conf", {"momentum_beta": 0.9, "epsilon": 1e-9, "lars_coefficient": 0.0001}, LARS),),
    ),
    OptimizerRow(Adam, (formulas.JOB_ADAM,), (Form("adam_conf", {**_BETAS, "do_bias_correction": False}, Adam),)),
    OptimizerRow(AdamW, (formulas.JOB_ADAM,)),
    OptimizerRow(LazyAdam, (formulas.JOB_ADAM,), (Form("lazy_adam_conf", _BETAS, LazyAdam, decays=False),)),
    OptimizerRow(LAMB, (formulas.JOB_LAMB,), (Form("lamb_conf", dict.fromkeys(_BETAS, REQUIRED), LAMB),)),
)
SCHEDULES = (
    ScheduleRow(schedule.ConstantScheduler),
    ScheduleRow(
        schedule.ExponentialScheduler, Form("exponential_conf", _DECAYING, _decaying(schedule.ExponentialScheduler))
    ),
    ScheduleRow(
        schedule.InverseTimeScheduler, Form("inverse_time_conf", _DECAYING, _decaying(schedule.InverseTimeScheduler))
    ),
    ScheduleRow(
        schedule.NaturalExpScheduler, Form("natural_exp_conf", _DECAYING, _decaying(schedule.NaturalExpScheduler))
    ),
    ScheduleRow(
        schedule.PiecewiseConstantScheduler,
        Form("piecewise_constant_conf", {"boundaries": REQUIRED, "values": REQUIRED}, _piecewise_constant),
    ),
    ScheduleRow(
        schedule.PiecewiseScalingScheduler,
        Form("piecewise_scaling_conf", {"boundaries": REQUIRED, "scales": REQUIRED}, _piecewise_scaling),
    ),
    ScheduleRow(
        schedule.PolynomialScheduler, Form("polynomial_conf", _POLYNOMIAL, _decaying(schedule.PolynomialScheduler))
    ),
    ScheduleRow(schedule.CosineScheduler, Form("cosine_conf", _COSINE, _decaying(schedule.CosineScheduler))),
    ScheduleRow(
        schedule.LinearCosineScheduler,
        Form("linear_cosine_conf", _LINEAR_COSINE, _decaying(schedule.LinearCosineScheduler)),
    ),
    ScheduleRow(schedule.CustomScheduler, is_formula=False),
)
WARMUPS = (
    WarmUpRow(
        warmup.constant,
        Form("constant_conf", {"warmup_batches": REQUIRED, "multiplier": REQUIRED}, _starting(warmup.constant)),
    ),
    WarmUpRow(
        warmup.linear,
        Form("linear_conf", {"warmup_batches": REQUIRED, "start_multiplier": REQUIRED}, _starting(warmup.linear)),
    ),
)

OPTIMIZER_FORMS: Mapping[str, Form] = MappingProxyType({form.key: form for row in OPTIMIZERS for form in row.forms})
SCHEDULE_FORMS: Mapping[str, Form] = MappingProxyType(
    {row.form.key: row.form for row in SCHEDULES if row.form is not None}
)
WARMUP_FORMS: Mapping[str, Form] = MappingProxyType({row.form.key: row.form for row in WARMUPS})
