"""``flow.keras.activations``."""

from __future__ import annotations

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.ir.blob import Blob, emit
from oneflow.engine.ops import unary as rows

__all__ = ["gelu", "relu", "sigmoid", "tanh"]


def relu(x: Blob, alpha: float = 0.0, max_value: float | None = None, threshold: float = 0.0) -> Blob:
    """The larger of x and 0. The other arguments exist for their names; only their defaults are taken."""
    if alpha != 0 or max_value is not None or threshold != 0:
        raise ArgumentError(
            f"keras.activations.relu takes alpha=0, max_value=None and threshold=0 only, got alpha={alpha!r}, "
            f"max_value={max_value!r}, threshold={threshold!r}; use flow.nn.leaky_relu or flow.clip_by_value"
        )
    return emit(rows.relu, x)


def gelu(x: Blob) -> Blob:
    """x times the normal distribution function of x, by the exact error function."""
    return emit(rows.gelu, x)


def tanh(x: Blob) -> Blob:
    """The hyperbolic tangent of x."""
    return emit(rows.tanh, x)


def sigmoid(x: Blob) -> Blob:
    """1 / (1 + exp(-x))."""
    return emit(rows.sigmoid, x)
