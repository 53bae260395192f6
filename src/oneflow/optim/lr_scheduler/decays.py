"""Schedulers that are one formula each; in it b is the base rate and t the step."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import torch

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.number import each, flag, number, whole
from oneflow.optim.lr_scheduler.base import LRScheduler

Optimizer = torch.optim.Optimizer


class ConstantLR(LRScheduler):
    """b * factor before ``total_iters``, then b."""

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 1.0 / 3,
        total_iters: int = 5,
        last_step: int = -1,
        verbose: bool = False,
    ) -> None:
        self.factor = number("factor", factor, 0, 1)
        self.total_iters = whole("total_iters", total_iters, 0)
        super().__init__(optimizer, last_step, verbose)

    def get_lr(self, base_lr: float, step: int) -> float:
        return base_lr * self.factor if step < self.total_iters else base_lr


class LinearLR(LRScheduler):
    """b * (start_factor + (end_factor - start_factor) * t / total_iters) until ``total_iters``, then b * end_factor."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_step: int = -1,
        verbose: bool = False,
    ) -> None:
        self.start_factor, self.end_factor = (
            number("start_factor", start_factor, 0, 1),
            number("end_factor", end_factor, 0, 1),
        )
        self.total_iters = whole("total_iters", total_iters, above=0)
        super().__init__(optimizer, last_step, verbose)

    def get_lr(self, base_lr: float, step: int) -> float:
        done = min(step, self.total_iters) / self.total_iters
        return base_lr * (self.start_factor + (self.end_factor - self.start_factor) * done)


class StepLR(LRScheduler):
    """b * gamma ** floor(t / step_size)"""

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_step: int = -1, verbose: bool = False
    ) -> None:
        self.step_size, self.gamma = whole("step_size", step_size, above=0), number("gamma", gamma, 0)
        super().__init__(optimizer, last_step, verbose)

    def get_lr(self, base_lr: float, step: int) -> float:
        return base_lr * self.gamma ** (step // self.step_size)


class MultiStepLR(LRScheduler):
    """b * gamma ** (how many of the milestones are at most t)"""

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Sequence[int],
        gamma: float = 0.1,
        last_step: int = -1,
        verbose: bool = False,
    ) -> None:
        self.milestones = sorted(each("milestones", milestones, lambda what, value: whole(what, value, 0)))
        self.gamma = number("gamma", gamma, 0)
        super().__init__(optimizer, last_step, verbose)

    def get_lr(self, base_lr: float, step: int) -> float:
        return base_lr * self.gamma ** bisect_right(self.milestones, step)


class ExponentialLR(LRScheduler):
    """b * gamma ** t"""

    def __init__(self, optimizer: Optimizer, gamma: float, last_step: int = -1, verbose: bool = False) -> None:
        self.gamma = number("gamma", gamma, 0)
        super().__init__(optimizer, last_step, verbose)

    def get_lr(self, base_lr: float, step: int) -> float:
        return base_lr * self.gamma**step


class PolynomialLR(LRScheduler):
    """(b - end_learning_rate) * (1 - t / T) ** power + end_learning_rate, T being ``decay_batch``: until T, or, with
    ``cycle``, with the next multiple of T for T."""

    def __init__(
        self,
        optimizer: Optimizer,
        decay_batch: int,
        end_learning_rate: float = 0.0001,
        power: float = 1.0,
        cycle: bool = False,
        last_step: int = -1,
        verbose: bool = False,
    ) -> None:
        self.decay_batch, self.cycle = whole("decay_batch", decay_batch, above=0), flag("cycle", cycle)
        self.end_learning_rate, self.power = (
            number("end_learning_rate", end_learning_rate, 0),
            number("power", power, 0),
        )
        super().__init__(optimizer, last_step, verbose)

    def get_lr(self, base_lr: float, step: int) -> float:
        batches = self.decay_batch * math.ceil(max(step, 1) / self.decay_batch) if self.cycle else self.decay_batch
        left = 1.0 - min(step, batches) / batches
        return (base_lr - self.end_learning_rate) * left**self.power + self.end_learning_rate


class CosineDecayLR(LRScheduler):
    """b * ((1 - alpha) * (1 + cos(pi * t / decay_steps)) / 2 + alpha) before ``decay_steps``, then b * alpha."""

    def __init__(
        self, optimizer: Optimizer, decay_steps: int, alpha: float = 0.0, last_step: int = -1, verbose: bool = False
    ) -> None:
        self.decay_steps, self.alpha = whole("decay_steps", decay_steps, above=0), number("alpha", alpha, 0)
        super().__init__(optimizer, last_step, verbose)

    def get_lr(self, base_lr: float, step: int) -> float:
        if step >= self.decay_steps:
            return base_lr * self.alpha
        return base_lr * ((1.0 - self.alpha) * 0.5 * (1.0 + math.cos(math.pi * step / self.decay_steps)) + self.alpha)


class CosineAnnealingLR(LRScheduler):
    """eta_min + (b - eta_min) * (1 + cos(pi * t / T_max)) / 2: after ``T_max`` it rises again."""

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_step: int = -1, verbose: bool = False
    ) -> None:
        self.T_max, self.eta_min = whole("T_max", T_max, above=0), number("eta_min", eta_min, 0)
        super().__init__(optimizer, last_step, verbose)

    def get_lr(self, base_lr: float, step: int) -> float:
        return self.eta_min + (base_lr - self.eta_min) * 0.5 * (1.0 + math.cos(math.pi * step / self.T_max))


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine from b * decay_rate ** i down to ``eta_min`` in each period i. The first has ``T_0`` steps, each
    next ``T_mult`` times as many. With a ``restart_limit`` above 0 there are so many periods, and ``eta_min`` after
    them."""

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        decay_rate: float = 1.0,
        restart_limit: int = 0,
        last_step: int = -1,
        verbose: bool = False,
    ) -> None:
        self.T_0, self.T_mult = whole("T_0", T_0, above=0), whole("T_mult", T_mult, above=0)
        self.eta_min, self.decay_rate = number("eta_min", eta_min, 0), number("decay_rate", decay_rate, 0)
        self.restart_limit = whole("restart_limit", restart_limit, 0)
        super().__init__(optimizer, last_step, verbose)

    def get_lr(self, base_lr: float, step: int) -> float:
        period, begun, size = self._period(step)
        if self.restart_limit and period >= self.restart_limit:
            return self.eta_min
        top = base_lr * self.decay_rate**period
        return self.eta_min + (top - self.eta_min) * 0.5 * (1.0 + math.cos(math.pi * (step - begun) / size))

    def _period(self, step: int) -> tuple[int, int, int]:
        """The number of the period that a step lies in, its first step and its size."""
        if self.T_mult == 1:
            period = step // self.T_0
            return period, period * self.T_0, self.T_0
        period, begun, size = 0, 0, self.T_0
        while step >= begun + size:
            period, begun, size = period + 1, begun + size, size * self.T_mult
        return period, begun, size


class LambdaLR(LRScheduler):
    """b * lr_lambda(t), with one function for all groups or a list of one for each. Functions are not part of the
    state; other callables are, by their attributes."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_step: int = -1, verbose: bool = False) -> None:
        groups = len(optimizer.param_groups) if isinstance(optimizer, Optimizer) else 1
        self.lr_lambdas: list[Callable[[int], float]] = (
            list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * groups
        )
        if len(self.lr_lambdas) != groups:
            raise ArgumentError(
                f"lr_lambda is one function or one for each of the {groups} parameter groups, got "
                f"{len(self.lr_lambdas)}"
            )
        if not all(callable(function) for function in self.lr_lambdas):
            raise ArgumentError(f"lr_lambda is a function of the step, or a list of them, got {lr_lambda!r}")
        super().__init__(optimizer, last_step, verbose)

    def get_lr(self, base_lr: float, step: int) -> float:
        """The rate by the function of the first group; ``rates`` gives each group its own."""
        return base_lr * self.lr_lambdas[0](step)

    def rates_from(self, base_lrs: Sequence[float], step: int) -> list[float]:
        return [base * function(step) for base, function in zip(base_lrs, self.lr_lambdas)]

    def state_dict(self) -> dict[str, Any]:
        kept = [
            dict(vars(f)) if hasattr(f, "__dict__") and not isinstance(f, FunctionType) else None
            for f in self.lr_lambdas
        ]
        return {**super().state_dict(), "lr_lambdas": kept}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        functions = self.lr_lambdas
        super().load_state_dict(state_dict)
        for function, kept in zip(functions, state_dict["lr_lambdas"]):
            if kept is not None:
                vars(function).update(kept)
        self.lr_lambdas = functions
