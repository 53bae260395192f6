"""``flow.layers``: derivatives of layer normalisation that were called by name."""

from __future__ import annotations

import math

from oneflow.array import reshape
from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.ir.blob import Blob
from oneflow.math import multiply, reduce_mean, reduce_sum
from oneflow.nn import _arguments as arguments


def layer_norm_grad(
    dy: Blob, x: Blob, mean: Blob, inv_variance: Blob, begin_norm_axis: int = 1, name: str | None = None
) -> Blob:
    """The gradient by x of (x - mean) · inv_variance, given that by the result; ``mean`` and ``inv_variance`` (one over
    the deviation) have the shape of the axes before ``begin_norm_axis``."""
    axis = arguments.axis_in("begin_norm_axis", begin_norm_axis, len(arguments.blob("x", x).shape))
    if (
        not dy.shape == x.shape
        or not mean.shape == inv_variance.shape
        or math.prod(mean.shape) != math.prod(x.shape[:axis])
    ):
        raise ArgumentError(
            f"layer_norm_grad takes dy like x and mean and inv_variance of shape {x.shape[:axis]}, got {dy!r}, {x!r}, "
            f"{mean!r}, {inv_variance!r}"
        )
    rows = (*x.shape[:axis], *[1] * (len(x.shape) - axis))
    factor = reshape(inv_variance, rows)
    norm = (x - reshape(mean, rows)) * factor
    axes = list(range(axis, len(x.shape)))
    inner = dy - reduce_mean(dy, axes, keepdims=True) - norm * reduce_mean(dy * norm, axes, keepdims=True)
    return multiply(inner, factor, name=name)


def layer_norm_param_grad(
    dy: Blob, norm: Blob, gamma: Blob, begin_params_axis: int = -1, name: str | None = None
) -> tuple[Blob, Blob, Blob]:
    """The gradients of norm · gamma + beta, given that by the result: by ``norm``, by beta, by ``gamma``."""
    axis = arguments.axis_in("begin_params_axis", begin_params_axis, len(arguments.blob("norm", norm).shape))
    if dy.shape != norm.shape or gamma.shape != norm.shape[axis:]:
        raise ArgumentError(
            f"layer_norm_param_grad takes dy like norm and gamma of shape {norm.shape[axis:]}, got {dy!r}, {norm!r}, "
            f"{gamma!r}"
        )
    leading = list(range(axis))
    return multiply(dy, gamma, name=name), reduce_sum(dy, leading), reduce_sum(dy * norm, leading)
