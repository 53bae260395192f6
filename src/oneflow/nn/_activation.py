"""``flow.nn``: activations."""

from __future__ import annotations

from oneflow.engine.core.number import number
from oneflow.engine.ir.blob import Blob, emit
from oneflow.engine.ops import activation as rows
from oneflow.math import multiply, reduce_sum


def relu6(x: Blob, name: str | None = None) -> Blob:
    """x held between 0 and 6."""
    return emit(rows.relu6, x, name=name)


def leaky_relu(x: Blob, alpha: float = 0.2, name: str | None = None) -> Blob:
    """x where it is positive, ``alpha`` · x elsewhere."""
    return emit(rows.leaky_relu, x, name=name, alpha=number("alpha", alpha))


def elu(x: Blob, alpha: float = 1.0, name: str | None = None) -> Blob:
    """x where it is positive, ``alpha`` · (exp(x) - 1) elsewhere."""
    return emit(rows.elu, x, name=name, alpha=number("alpha", alpha))


def hardswish(x: Blob, name: str | None = None) -> Blob:
    """x · relu6(x + 3) / 6."""
    return emit(rows.hardswish, x, name=name)


def hardsigmoid(x: Blob, name: str | None = None) -> Blob:
    """relu6(x + 3) / 6."""
    return emit(rows.hardsigmoid, x, name=name)


def hardtanh(x: Blob, min_val: float = -1.0, max_val: float = 1.0, name: str | None = None) -> Blob:
    """x held between ``min_val`` and ``max_val``."""
    return emit(rows.hardtanh, x, name=name, low=number("min_val", min_val), high=number("max_val", max_val))


def swish(x: Blob, beta: float = 1.0, name: str | None = None) -> Blob:
    """x · sigmoid(``beta`` · x)."""
    return emit(rows.swish, x, name=name, beta=number("beta", beta))


def softmax(logits: Blob, axis: int | None = None, name: str | None = None) -> Blob:
    """exp(logits) divided by its sum over ``axis`` (the last if None), for blobs of rank 2 or more."""
    return emit(rows.softmax, logits, name=name, dim=-1 if axis is None else axis)


def softmax_grad(y: Blob, dy: Blob, axis: int | None = None, name: str | None = None) -> Blob:
    """y · (dy - Σ dy · y over ``axis``), where y is the softmax over ``axis`` (the last if None)."""
    return multiply(y, dy - reduce_sum(dy * y, axis=-1 if axis is None else axis, keepdims=True), name=name)


def logsoftmax(logits: Blob, axis: int | None = None, name: str | None = None) -> Blob:
    """log(softmax(logits)), without overflow."""
    return emit(rows.logsoftmax, logits, name=name, dim=-1 if axis is None else axis)
