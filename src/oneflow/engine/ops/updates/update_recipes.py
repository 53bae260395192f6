"""How the updates of ``update.py`` and ``optim_update.py`` are done by sweeps: with which numbers, and what comes
between two of them.

A recipe takes what runs a sweep, the variables with gradients and states in columns, the direction of the gradients,
and the numbers that the update itself takes. It does what the update does but for rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from oneflow.engine.ops.updates import update_sweeps as sweeps
from oneflow.engine.ops.updates.update_sweeps import Sweep

Columns = Sequence[list[Tensor]]
Rows = list[list[float]]
Runs = Callable[[Sweep, Columns, Rows], list[tuple[float, ...]]]
"""Runs a sweep on variables in columns, with numbers of all or of each, and gives the sums of each."""


@dataclass(frozen=True)
class Direction:
    """What an update goes by: gradient * g + weight * w + sign * sign(w)."""

    gradient: float = 1.0
    weight: float = 0.0
    sign: float = 0.0

    def and_decay(self, weight_decay: float, maximize: bool = False) -> list[float]:
        """Its numbers with a weight decay more; ``maximize``: against the way it was before that."""
        way = -1.0 if maximize else 1.0
        return [way * self.gradient, way * self.weight + weight_decay, way * self.sign]


@dataclass(frozen=True)
class OneSweep:
    """An update that is one sweep, by ``numbers(direction, lr, **numbers)``."""

    sweep: Sweep
    numbers: Callable[..., list[float]]

    @property
    def sweeps(self) -> tuple[Sweep, ...]:
        return (self.sweep,)

    def __call__(self, run: Runs, columns: Columns, towards: Direction, lr: float, **numbers: Any) -> None:
        run(self.sweep, columns, [self.numbers(towards, lr, **numbers)])


@dataclass(frozen=True)
class Sweeps:
    """An update of some ``sweeps`` with something between them: ``function(run, columns, direction, lr,
    **numbers)``."""

    function: Callable[..., None]
    sweeps: tuple[Sweep, ...]

    def __call__(self, run: Runs, columns: Columns, towards: Direction, lr: float, **numbers: Any) -> None:
        self.function(run, columns, towards, lr, **numbers)


Recipe = OneSweep | Sweeps


# ------------------------------------------------------------------ descent, momentum


def _naive(towards: Direction, lr: float, *, weight_decay: float, l2: float = 0.0) -> list[float]:
    return [*towards.and_decay(weight_decay + l2), lr]


def _sgd(towards: Direction, lr: float, *, weight_decay: float, maximize: bool) -> list[float]:
    return [*towards.and_decay(weight_decay, maximize), lr]


def _momentum(towards: Direction, lr: float, *, beta: float, weight_decay: float, l2: float = 0.0) -> list[float]:
    return [*towards.and_decay(l2), beta, -lr, 1.0 - lr * weight_decay, 1.0, 0.0]


def _sgd_momentum(
    towards: Direction,
    lr: float,
    *,
    count: float,
    momentum: float,
    dampening: float,
    nesterov: bool,
    weight_decay: float,
    maximize: bool,
) -> list[float]:
    keep, take = (0.0, 1.0) if count == 1.0 else (momentum, 1.0 - dampening)
    by = (-lr * momentum, -lr) if nesterov else (-lr, 0.0)
    return [*towards.and_decay(weight_decay, maximize), keep, take, 1.0, *by]


# ------------------------------------------------------------------ Adam


def _job_adam(
    towards: Direction, lr: float, *, beta1: float, beta2: float, epsilon: float, weight_decay: float
) -> list[float]:
    return [*towards.and_decay(0.0), *_means(beta1, beta2), 1.0 - lr * weight_decay, lr, 1.0, epsilon]


def _means(beta1: float, beta2: float) -> list[float]:
    return [beta1, 1.0 - beta1, beta2, 1.0 - beta2]


def _adam(
    towards: Direction,
    lr: float,
    *,
    count: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
    decoupled: bool,
    do_bias_correction: bool,
) -> list[float]:
    coupled, shrink = (0.0, 1.0 - lr * weight_decay) if decoupled else (weight_decay, 1.0)
    step, root = _corrections(count, beta1, beta2, do_bias_correction)
    return [*towards.and_decay(coupled), *_means(beta1, beta2), shrink, lr * step, root, epsilon]


def _corrections(count: float, beta1: float, beta2: float, do_bias_correction: bool) -> tuple[float, float]:
    """By what the mean and the root are multiplied."""
    return (1.0 / (1.0 - beta1**count), (1.0 - beta2**count) ** -0.5) if do_bias_correction else (1.0, 1.0)


# ------------------------------------------------------------------ by the size of gradients


def _adagrad(
    towards: Direction,
    lr: float,
    *,
    count: float,
    lr_decay: float,
    weight_decay: float,
    epsilon: float,
    initial_accumulator_value: float,
) -> list[float]:
    return [*towards.and_decay(weight_decay), lr / (1.0 + (count - 1.0) * lr_decay), epsilon]


def _adadelta(
    towards: Direction, lr: float, *, rho: float, epsilon: float, weight_decay: float, maximize: bool
) -> list[float]:
    return [*towards.and_decay(weight_decay, maximize), rho, 1.0 - rho, epsilon, lr]


def _rmsprop(towards: Direction, lr: float, *, alpha: float, epsilon: float, weight_decay: float) -> list[float]:
    return [*towards.and_decay(weight_decay), alpha, 1.0 - alpha, epsilon, lr]


def _rmsprop_momentum(
    towards: Direction, lr: float, *, alpha: float, epsilon: float, weight_decay: float, momentum: float
) -> list[float]:
    return [*_rmsprop(towards, lr, alpha=alpha, epsilon=epsilon, weight_decay=weight_decay), momentum]


def _job_rmsprop(towards: Direction, lr: float, *, decay_rate: float, epsilon: float) -> list[float]:
    return _rmsprop(towards, lr, alpha=decay_rate, epsilon=epsilon, weight_decay=0.0)


# ------------------------------------------------------------------ by norms


def norms_of(norms: Any, squares: Sequence[Sequence[float]]) -> list[list[float]]:
    """The norms of each sum of squares: of whole variables, where a rank has summed over a part."""
    return [
        [float(norm) for norm in norms([torch.tensor(math.sqrt(one), dtype=torch.float64) for one in column])]
        for column in zip(*squares)
    ]


def _lars(
    run: Runs,
    columns: Columns,
    towards: Direction,
    lr: float,
    *,
    beta: float,
    epsilon: float,
    coefficient: float,
    weight_decay: float,
    norms: Any,
) -> None:
    of_w, of_g = norms_of(norms, run(sweeps.SQUARES, columns[:2], [towards.and_decay(0.0)]))
    ratios = [
        1.0 if w == 0.0 or g == 0.0 else coefficient * w / (epsilon + g + weight_decay * w) for w, g in zip(of_w, of_g)
    ]
    rows = [[*towards.and_decay(0.0), beta, -lr * ratio, 1.0 - lr * ratio * weight_decay, 1.0, 0.0] for ratio in ratios]
    run(sweeps.MOMENTUM, columns, rows)


def _job_lamb(
    run: Runs,
    columns: Columns,
    towards: Direction,
    lr: float,
    *,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
    norms: Any,
) -> None:
    *columns, beta1_t, beta2_t = columns
    torch._foreach_mul_(beta1_t, beta1)
    torch._foreach_mul_(beta2_t, beta2)
    corrections = [(1.0 / (1.0 - float(b1)), (1.0 - float(b2)) ** -0.5) for b1, b2 in zip(beta1_t, beta2_t)]
    _by_trust(
        run, columns, [*towards.and_decay(0.0), *_means(beta1, beta2)], corrections, epsilon, weight_decay, lr, norms
    )


def _lamb(
    run: Runs,
    columns: Columns,
    towards: Direction,
    lr: float,
    *,
    count: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
    decoupled: bool,
    do_bias_correction: bool,
    norms: Any,
) -> None:
    coupled, decay = (0.0, weight_decay) if decoupled else (weight_decay, 0.0)
    corrections = [_corrections(count, beta1, beta2, do_bias_correction)] * len(columns[0])
    _by_trust(
        run, columns, [*towards.and_decay(coupled), *_means(beta1, beta2)], corrections, epsilon, decay, lr, norms
    )


def _by_trust(
    run: Runs,
    columns: Columns,
    first: list[float],
    corrections: list[tuple[float, float]],
    epsilon: float,
    weight_decay: float,
    lr: float,
    norms: Any,
) -> None:
    """LAMB: the direction of Adam, by the ratio of the norms of a variable and its direction."""
    of_w, of_d = norms_of(
        norms, run(sweeps.LAMB_MOMENTS, columns, [[*first, *correction, epsilon] for correction in corrections])
    )
    trusts = [w / d if w > 0.0 and d > 0.0 else 1.0 for w, d in zip(of_w, of_d)]
    rows = [[lr * trust, weight_decay, *correction, epsilon] for trust, correction in zip(trusts, corrections)]
    run(sweeps.LAMB_STEP, [columns[0], columns[2], columns[3]], rows)


NAIVE = OneSweep(sweeps.DESCENT, _naive)
SGD = OneSweep(sweeps.DESCENT, _sgd)
MOMENTUM = OneSweep(sweeps.MOMENTUM, _momentum)
SGD_MOMENTUM = OneSweep(sweeps.MOMENTUM, _sgd_momentum)
JOB_ADAM = OneSweep(sweeps.ADAM, _job_adam)
ADAM = OneSweep(sweeps.ADAM, _adam)
AMSGRAD = OneSweep(sweeps.AMSGRAD, _adam)
ADAGRAD = OneSweep(sweeps.ADAGRAD, _adagrad)
ADADELTA = OneSweep(sweeps.ADADELTA, _adadelta)
JOB_RMSPROP = OneSweep(sweeps.RMSPROP, _job_rmsprop)
JOB_RMSPROP_CENTERED = OneSweep(sweeps.RMSPROP_CENTERED, _job_rmsprop)
RMSPROP = OneSweep(sweeps.RMSPROP, _rmsprop)
RMSPROP_MOMENTUM = OneSweep(sweeps.RMSPROP_MOMENTUM, _rmsprop_momentum)
RMSPROP_CENTERED = OneSweep(sweeps.RMSPROP_CENTERED, _rmsprop)
RMSPROP_CENTERED_MOMENTUM = OneSweep(sweeps.RMSPROP_CENTERED_MOMENTUM, _rmsprop_momentum)
LARS = Sweeps(_lars, (sweeps.SQUARES, sweeps.MOMENTUM))
JOB_LAMB = Sweeps(_job_lamb, (sweeps.LAMB_MOMENTS, sweeps.LAMB_STEP))
LAMB = Sweeps(_lamb, (sweeps.LAMB_MOMENTS, sweeps.LAMB_STEP))
