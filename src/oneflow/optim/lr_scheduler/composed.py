"""Schedulers made of others."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import torch

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.number import each, flag, number, whole
from oneflow.optim.lr_scheduler.base import LRScheduler

METHODS = ("linear", "constant")


class _Composed(LRScheduler):
    """One whose rates come from ``schedulers``; their state is part of its own."""

    schedulers: list[LRScheduler]

    @property
    def is_function_of_step(self) -> bool:
        return all(scheduler.is_function_of_step for scheduler in self.schedulers)

    def get_lr(self, base_lr: float, step: int) -> float:
        return self.rates_from([base_lr], step)[0]

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "schedulers": [scheduler.state_dict() for scheduler in self.schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        schedulers = self.schedulers
        if len(state_dict.get("schedulers", ())) != len(schedulers):
            raise ArgumentError(
                f"this state of a scheduler is not one of {type(self).__name__} of {len(schedulers)} schedulers"
            )
        super().load_state_dict(state_dict)
        for scheduler, kept in zip(schedulers, state_dict["schedulers"]):
            scheduler.load_state_dict(kept)
        self.schedulers = schedulers


class SequentialLR(_Composed):
    """``schedulers[i]`` until ``milestones[i]``, then the next. All count the same steps; one with
    ``interval_rescaling``, which is a truth value for all or a list of one for each, counts from the milestone at which
    it begins."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        schedulers: Sequence[LRScheduler],
        milestones: Sequence[int],
        interval_rescaling: Sequence[bool] | bool = False,
        last_step: int = -1,
        verbose: bool = False,
    ) -> None:
        self.schedulers = _of_one_optimizer(schedulers, optimizer)
        self.milestones = list(each("milestones", milestones, lambda what, value: whole(what, value, 0)))
        if len(self.milestones) != len(self.schedulers) - 1 or self.milestones != sorted(set(self.milestones)):
            raise ArgumentError(
                f"{len(self.schedulers)} schedulers have {len(self.schedulers) - 1} rising milestones between them, "
                f"got {milestones!r}"
            )
        self.interval_rescaling = _for_each(interval_rescaling, len(self.schedulers))
        super().__init__(optimizer, last_step, verbose)

    def rates_from(self, base_lrs: Sequence[float], step: int) -> list[float]:
        i = bisect_right(self.milestones, step)
        begun = self.milestones[i - 1] if i and self.interval_rescaling[i] else 0
        return self.schedulers[i].rates_from(base_lrs, step - begun)


class WarmUpLR(_Composed):
    """A scheduler, or the base rates b of an optimizer, s(t), with other rates before ``warmup_iters`` W:
    "linear": b * warmup_factor at step 0, on a straight line to s(W); "constant": b * warmup_factor.

    s goes on by the same steps. With ``warmup_prefix`` it begins after the warm-up: s(t - W), and the line leads to
    s(0).
    """

    def __init__(
        self,
        scheduler_or_optimizer: LRScheduler | torch.optim.Optimizer,
        warmup_factor: float = 1.0 / 3,
        warmup_iters: int = 5,
        warmup_method: str = "linear",
        warmup_prefix: bool = False,
        last_step: int = -1,
        verbose: bool = False,
    ) -> None:
        if not isinstance(scheduler_or_optimizer, (LRScheduler, torch.optim.Optimizer)):
            raise ArgumentError(
                f"WarmUpLR takes a scheduler or an optimizer, got {type(scheduler_or_optimizer).__name__}"
            )
        if warmup_method not in METHODS:
            raise ArgumentError(f"warmup_method is one of {list(METHODS)}, got {warmup_method!r}")
        self.schedulers = [scheduler_or_optimizer] if isinstance(scheduler_or_optimizer, LRScheduler) else []
        self.warmup_factor, self.warmup_iters = (
            number("warmup_factor", warmup_factor, 0, 1),
            whole("warmup_iters", warmup_iters, 0),
        )
        self.warmup_method, self.warmup_prefix = warmup_method, flag("warmup_prefix", warmup_prefix)
        optimizer = (
            scheduler_or_optimizer.optimizer
            if isinstance(scheduler_or_optimizer, LRScheduler)
            else scheduler_or_optimizer
        )
        super().__init__(optimizer, last_step, verbose)

    def rates_from(self, base_lrs: Sequence[float], step: int) -> list[float]:
        ends = self._after(base_lrs, max(step, self.warmup_iters))
        return (
            ends if step >= self.warmup_iters else [self._warming(base, end, step) for base, end in zip(base_lrs, ends)]
        )

    def _warming(self, base: float, end: float, step: int) -> float:
        start = base * self.warmup_factor
        return start if self.warmup_method == "constant" else start + (end - start) * step / self.warmup_iters

    def _after(self, base_lrs: Sequence[float], step: int) -> list[float]:
        """The rates of a step that is not below ``warmup_iters``."""
        counted = step - self.warmup_iters if self.warmup_prefix else step
        return self.schedulers[0].rates_from(base_lrs, counted) if self.schedulers else list(base_lrs)


class ChainedScheduler(_Composed):
    """The schedulers one after the other in every step, each with the rate of the one before for its base rate: of
    schedulers that multiply the base rate by a factor, the product of all factors."""

    def __init__(self, schedulers: Sequence[LRScheduler]) -> None:
        self.schedulers = _of_one_optimizer(schedulers, None)
        super().__init__(self.schedulers[0].optimizer)

    def rates_from(self, base_lrs: Sequence[float], step: int) -> list[float]:
        for scheduler in self.schedulers:
            base_lrs = scheduler.rates_from(base_lrs, step)
        return list(base_lrs)


def _of_one_optimizer(schedulers: Any, optimizer: torch.optim.Optimizer | None) -> list[LRScheduler]:
    """A list of schedulers that set the rates of one optimizer."""
    if not isinstance(schedulers, (list, tuple)) or not schedulers:
        raise ArgumentError(f"schedulers is a list of schedulers, got {schedulers!r}")
    for scheduler in schedulers:
        if not isinstance(scheduler, LRScheduler):
            raise ArgumentError(
                f"schedulers is a list of schedulers with a formula of the step, got {type(scheduler).__name__} among "
                f"them"
            )
        if scheduler.optimizer is not (optimizer or schedulers[0].optimizer):
            raise ArgumentError("all schedulers set the rates of one optimizer; one of them has another")
    return list(schedulers)


def _for_each(rescaling: Any, count: int) -> list[bool]:
    given = rescaling if isinstance(rescaling, (list, tuple)) else [rescaling] * count
    if len(given) != count:
        raise ArgumentError(
            f"interval_rescaling is True, False or one of them for each of the {count} schedulers, got {rescaling!r}"
        )
    return [flag("interval_rescaling", value) for value in given]
