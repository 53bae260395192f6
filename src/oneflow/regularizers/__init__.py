"""Regularizers: frozen values that say what is added to a variable's gradient."""

from __future__ import annotations

from dataclasses import dataclass

from oneflow.engine.core.number import number

__all__ = ["Regularizer", "l1", "l1_l2", "l2"]


@dataclass(frozen=True)
class Regularizer:
    """Adds ``l1 * sign(w) + l2 * w`` to the gradient of variable w. The loss value stays as it is."""

    l1: float = 0.0
    l2: float = 0.0


def l1(l: float = 0.01) -> Regularizer:  # noqa: E741 - the name users write
    """Adds ``l * sign(w)`` to the gradient; sign(0) is 0."""
    return Regularizer(l1=number("l", l, 0))


def l2(l: float = 0.01) -> Regularizer:  # noqa: E741 - the name users write
    """Adds ``l * w`` to the gradient: no factor 2."""
    return Regularizer(l2=number("l", l, 0))


def l1_l2(l1: float = 0.01, l2: float = 0.01) -> Regularizer:
    """Adds ``l1 * sign(w) + l2 * w`` to the gradient."""
    return Regularizer(number("l1", l1, 0), number("l2", l2, 0))
