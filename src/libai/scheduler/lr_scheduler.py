"""Warm-up before a schedule. Schedule and warm-up count the same iterations: with W = ``warmup_iter``, b the base rate
and s(t) the schedule,

    "linear":    t < W: b * f + (s(W) - b * f) * t / W, with f = ``warmup_factor``; then s(t)
    "constant":  t < W: b * f; then s(t)

so a linear warm-up ends at the schedule's own value at W. With W = 0 there is none.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.number import number, whole
from oneflow.optim.lr_scheduler import (
    CosineAnnealingLR,
    CosineDecayLR,
    ExponentialLR,
    LRScheduler,
    MultiStepLR,
    PolynomialLR,
    StepLR,
    WarmUpLR,
)

Optimizer = torch.optim.Optimizer
logger = logging.getLogger("libai.scheduler")


def WarmupCosineLR(
    optimizer: Optimizer,
    max_iter: int,
    warmup_factor: float,
    warmup_iter: int,
    alpha: float = 0.0,
    warmup_method: str = "linear",
) -> LRScheduler:
    """Half a cosine from b down to b * ``alpha`` at ``max_iter``, and that from there on."""
    _require_iterations(max_iter)
    if warmup_iter > max_iter:
        logger.warning("warmup_iter is %s and max_iter %s: the warm-up does not end", warmup_iter, max_iter)
    return _warmed(
        CosineDecayLR(optimizer, decay_steps=max_iter, alpha=alpha), warmup_factor, warmup_iter, warmup_method
    )


def WarmupCosineAnnealingLR(
    optimizer: Optimizer,
    max_iter: int,
    warmup_factor: float,
    warmup_iter: int,
    eta_min: float = 0.0,
    warmup_method: str = "linear",
) -> LRScheduler:
    """Half a cosine from b down to ``eta_min`` at ``max_iter``; it would rise again after that."""
    _require_iterations(max_iter)
    return _warmed(
        CosineAnnealingLR(optimizer, T_max=max_iter, eta_min=eta_min), warmup_factor, warmup_iter, warmup_method
    )


def WarmupStepLR(
    optimizer: Optimizer,
    max_iter: int,
    warmup_factor: float,
    warmup_iter: int,
    step_size: int,
    gamma: float = 0.1,
    warmup_method: str = "linear",
) -> LRScheduler:
    """b * gamma ** (t // step_size)"""
    return _warmed(StepLR(optimizer, step_size=step_size, gamma=gamma), warmup_factor, warmup_iter, warmup_method)


def WarmupMultiStepLR(
    optimizer: Optimizer,
    max_iter: int,
    warmup_factor: float,
    warmup_iter: int,
    milestones: Sequence[int],
    gamma: float = 0.1,
    warmup_method: str = "linear",
) -> LRScheduler:
    """b * gamma ** (how many of the ``milestones``, iterations, are at most t); one inside the warm-up lowers the rate
    it ends at."""
    return _warmed(
        MultiStepLR(optimizer, milestones=list(milestones), gamma=gamma), warmup_factor, warmup_iter, warmup_method
    )


def WarmupExponentialLR(
    optimizer: Optimizer,
    max_iter: int,
    gamma: float,
    warmup_factor: float,
    warmup_iter: int,
    warmup_method: str = "linear",
) -> LRScheduler:
    """b * gamma ** t"""
    return _warmed(ExponentialLR(optimizer, gamma=gamma), warmup_factor, warmup_iter, warmup_method)


def WarmupPolynomialLR(
    optimizer: Optimizer,
    max_iter: int,
    warmup_factor: float,
    warmup_iter: int,
    end_learning_rate: float = 0.0001,
    power: float = 1.0,
    cycle: bool = False,
    warmup_method: str = "linear",
) -> LRScheduler:
    """(b - end_learning_rate) * (1 - t / max_iter) ** power + end_learning_rate, until ``max_iter`` or, with ``cycle``,
    to its next multiple."""
    _require_iterations(max_iter)
    inner = PolynomialLR(optimizer, decay_batch=max_iter, end_learning_rate=end_learning_rate, power=power, cycle=cycle)
    return _warmed(inner, warmup_factor, warmup_iter, warmup_method)


def _warmed(inner: LRScheduler, warmup_factor: float, warmup_iter: int, warmup_method: str) -> LRScheduler:
    number("warmup_factor", warmup_factor, 0, 1)
    if whole("warmup_iter", warmup_iter, 0) == 0:
        logger.warning("warmup_iter is 0: there is no warm-up")
        return inner
    if warmup_method == "linear" and len(set(inner.base_lrs)) > 1:
        raise ArgumentError(
            "The param_groups in optimizer have different warmup configs: a linear warm-up needs one base lr for all "
            "of them, "
            f"got {sorted(set(inner.base_lrs))}; use warmup_method='constant'"
        )
    return WarmUpLR(inner, warmup_factor=warmup_factor, warmup_iters=warmup_iter, warmup_method=warmup_method)


def _require_iterations(max_iter: int) -> None:
    if whole("max_iter", max_iter) < 1:
        raise ArgumentError(
            f"max_iter is the number of iterations and at least 1, got {max_iter}; set train.train_iter or "
            f"train.train_epoch"
        )
