"""``flow.optimizer.warmup``: how a schedule starts."""

from __future__ import annotations

from oneflow.optimizer.schedule import WarmUp

__all__ = ["constant", "linear"]


def constant(steps: int, multiplier: float) -> WarmUp:
    """``multiplier`` times the base rate for the first ``steps`` steps."""
    return WarmUp(steps, multiplier, linear=False)


def linear(steps: int, start_multiplier: float) -> WarmUp:
    """From ``start_multiplier`` times the base rate up to the base rate over ``steps`` steps."""
    return WarmUp(steps, start_multiplier, linear=True)
