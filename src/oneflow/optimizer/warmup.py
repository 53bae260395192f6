"""``flow.optimizer.warmup``: how a schedule starts."""

from __future__ import annotations

from oneflow.engine.core.number import number, whole
from oneflow.optimizer.schedule import WarmUp

__all__ = ["constant", "linear"]


def constant(steps: int, multiplier: float) -> WarmUp:
    """``multiplier`` times the base rate for the first ``steps`` steps."""
    return WarmUp(whole("steps", steps, 0), number("multiplier", multiplier, 0, below=1), linear=False)


def linear(steps: int, start_multiplier: float) -> WarmUp:
    """From ``start_multiplier`` times the base rate up to the base rate over ``steps`` steps."""
    return WarmUp(whole("steps", steps, 0), number("start_multiplier", start_multiplier, 0, below=1), linear=True)
