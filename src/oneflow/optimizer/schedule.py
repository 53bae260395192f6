"""Learning-rate schedules: pure functions of the train step, counted from 0.

Warm-up replaces the decay while it lasts; afterwards the decay is evaluated at the absolute step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real

import numpy as np

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.number import each, flag, number, whole


@dataclass(frozen=True)
class WarmUp:
    """A start phase of ``steps`` steps; ``factor(t)`` multiplies the base rate."""

    steps: int
    start: float
    linear: bool

    def factor(self, t: int) -> float:
        return self.start + (1.0 - self.start) * t / self.steps if self.linear else self.start


class LrScheduler:
    """Base of all schedules: ``lr(t)`` is the rate of step ``t``, rounded to float32."""

    def __init__(self, base_lr: float, warmup: WarmUp | None = None) -> None:
        if warmup is not None and not isinstance(warmup, WarmUp):
            raise ArgumentError(f"warmup is flow.optimizer.warmup.linear(...) or .constant(...), got {warmup!r}")
        self.base_lr = number("base_lr", base_lr, 0)
        self.warmup = warmup

    def lr(self, t: int, base_lr: float | None = None) -> float:
        """The rate of step ``t``; another ``base_lr`` may stand in for the schedule's own."""
        base = self.base_lr if base_lr is None else base_lr
        if self.warmup is not None and t < self.warmup.steps:
            return float(np.float32(base * self.warmup.factor(t)))
        return float(np.float32(self.decay(base, t)))

    def decay(self, base: float, t: int) -> float:
        """The rate without warm-up."""
        raise NotImplementedError


class ConstantScheduler(LrScheduler):
    """Always the base rate (warm-up aside)."""

    def decay(self, base: float, t: int) -> float:
        return base


class CosineScheduler(LrScheduler):
    """Half a cosine from ``base_lr`` to ``alpha * base_lr`` over ``steps`` steps, then flat."""

    def __init__(self, base_lr: float, steps: int, alpha: float = 0.0, warmup: WarmUp | None = None) -> None:
        super().__init__(base_lr, warmup)
        self.steps, self.alpha = whole("steps", steps, above=0), number("alpha", alpha)

    def decay(self, base: float, t: int) -> float:
        t = min(t, self.steps)
        return base * ((1.0 - self.alpha) * 0.5 * (1.0 + math.cos(math.pi * t / self.steps)) + self.alpha)


class LinearCosineScheduler(LrScheduler):
    """A cosine of ``num_periods`` periods under a line that falls to 0."""

    def __init__(
        self,
        base_lr: float,
        steps: int,
        num_periods: float = 0.5,
        alpha: float = 0.0,
        beta: float = 0.001,
        warmup: WarmUp | None = None,
    ) -> None:
        super().__init__(base_lr, warmup)
        self.steps, self.num_periods = whole("steps", steps, above=0), number("num_periods", num_periods)
        self.alpha, self.beta = number("alpha", alpha), number("beta", beta)

    def decay(self, base: float, t: int) -> float:
        t = min(t, self.steps)
        cosine = 0.5 * (1.0 + math.cos(2.0 * math.pi * self.num_periods * t / self.steps))
        return base * ((self.alpha + (self.steps - t) / self.steps) * cosine + self.beta)


class PiecewiseConstantScheduler(LrScheduler):
    """``values[i]`` up to and including step ``boundaries[i]``, the last value beyond."""

    def __init__(self, boundaries: Sequence[int], values: Sequence[float], warmup: WarmUp | None = None) -> None:
        self.boundaries, self.values = _increasing(boundaries), each("values", values, _not_negative)
        if len(self.values) != len(self.boundaries) + 1:
            raise ArgumentError(
                f"{len(self.boundaries)} boundaries need {len(self.boundaries) + 1} values, got {len(self.values)}"
            )
        super().__init__(self.values[0], warmup)

    def decay(self, base: float, t: int) -> float:
        return self.values[_piece(self.boundaries, t)]


class PiecewiseScalingScheduler(LrScheduler):
    """``base_lr`` times 1, then times ``scale[i]`` past step ``boundaries[i]``."""

    def __init__(
        self, base_lr: float, boundaries: Sequence[int], scale: float | Sequence[float], warmup: WarmUp | None = None
    ) -> None:
        super().__init__(base_lr, warmup)
        self.boundaries = _increasing(boundaries)
        scales = each("scale", [scale] * len(self.boundaries) if isinstance(scale, Real) else scale, _not_negative)
        if len(scales) != len(self.boundaries):
            raise ArgumentError(f"{len(self.boundaries)} boundaries need as many scales, got {len(scales)}")
        self.scales = (1.0, *scales)

    def decay(self, base: float, t: int) -> float:
        return base * self.scales[_piece(self.boundaries, t)]


class PolynomialScheduler(LrScheduler):
    """From ``base_lr`` to ``end_learning_rate`` along a power of the remaining way; ``cycle`` starts again each
    ``steps``."""

    def __init__(
        self,
        base_lr: float,
        steps: int,
        end_learning_rate: float = 0.0001,
        power: float = 1.0,
        cycle: bool = False,
        warmup: WarmUp | None = None,
    ) -> None:
        super().__init__(base_lr, warmup)
        self.steps, self.end = whole("steps", steps, above=0), number("end_learning_rate", end_learning_rate, 0)
        self.power, self.cycle = number("power", power, 0), flag("cycle", cycle)

    def decay(self, base: float, t: int) -> float:
        steps = self.steps
        if self.cycle:
            steps = self.steps * math.ceil(max(t, 1) / self.steps)
        else:
            t = min(t, steps)
        return (base - self.end) * (1.0 - t / steps) ** self.power + self.end


class _Decaying(LrScheduler):
    def __init__(
        self, base_lr: float, steps: int, decay_rate: float, staircase: bool = False, warmup: WarmUp | None = None
    ) -> None:
        super().__init__(base_lr, warmup)
        self.steps, self.decay_rate = whole("steps", steps, above=0), number("decay_rate", decay_rate, 0)
        self.staircase = flag("staircase", staircase)

    def _periods(self, t: int) -> float:
        return t // self.steps if self.staircase else t / self.steps


class ExponentialScheduler(_Decaying):
    """base * decay_rate ** (t / steps); ``staircase`` floors the exponent."""

    def decay(self, base: float, t: int) -> float:
        return base * self.decay_rate ** self._periods(t)


class InverseTimeScheduler(_Decaying):
    """base / (1 + decay_rate * t / steps)."""

    def decay(self, base: float, t: int) -> float:
        return base / (1.0 + self.decay_rate * self._periods(t))


class NaturalExpScheduler(_Decaying):
    """base * exp(-decay_rate * t / steps)."""

    def decay(self, base: float, t: int) -> float:
        return base * math.exp(-self.decay_rate * self._periods(t))


class CustomScheduler(LrScheduler):
    """The rate is a float blob that the job computes, given by its logical blob name."""

    def __init__(self, lbn: str) -> None:
        if not isinstance(lbn, str):
            raise ArgumentError(f"CustomScheduler takes a blob's logical_blob_name, such as 'Lr_0/out'; got {lbn!r}")
        super().__init__(0.0)  # the blob gives the rate, no base is asked for
        self.lbn = lbn


def _not_negative(what: str, value: float) -> float:
    return number(what, value, 0)


def _increasing(boundaries: Sequence[int]) -> tuple[int, ...]:
    steps = each("boundaries", boundaries, whole)
    if any(b <= a for a, b in zip(steps, steps[1:])):
        raise ArgumentError(f"boundaries must increase, got {list(steps)}")
    return steps


def _piece(boundaries: tuple[int, ...], t: int) -> int:
    return next((i for i, boundary in enumerate(boundaries) if t <= boundary), len(boundaries))
