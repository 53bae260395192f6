"""Update formulas of TensorFlow 1 that ``flow.optim`` does not have, as rows for eager steps and graphs.

Each differs from torch's optimizer of the same name; at FastNN's default epsilon of 1 the difference is large.
"""

from __future__ import annotations

import math

import torch

from oneflow.engine.ops.updates.formulas import average_, fused_adam_
from oneflow.engine.ops.updates.rows import State, Tensors, UpdateRow


def tf_adam(
    params: Tensors,
    grads: Tensors,
    m: Tensors,
    v: Tensors,
    lr: float,
    *,
    count: float,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> None:
    """m, v: moving means of g and g*g; w -= lr * sqrt(1 - beta2 ** count) / (1 - beta1 ** count) * m / (sqrt(v) +
    epsilon).

    Unlike torch's, the bias correction does not apply to epsilon.
    """
    corrected = lr * (1.0 - beta2**count) ** 0.5 / (1.0 - beta1**count)
    numbers = {"beta1": beta1, "beta2": beta2, "eps": epsilon, "weight_decay": 0.0}
    fused_adam_(params, grads, m, v, None, corrected, math.inf, decoupled=False, **numbers)


def tf_rmsprop(
    params: Tensors,
    grads: Tensors,
    mean_square: Tensors,
    velocity: Tensors,
    lr: float,
    *,
    decay: float,
    momentum: float,
    epsilon: float,
    first_mean_square: float,
) -> None:
    """s = decay * s + (1 - decay) * g * g, from ``first_mean_square`` on; v = momentum * v + lr * g / sqrt(s +
    epsilon); w -= v"""
    average_(mean_square, torch._foreach_mul(grads, grads), decay)
    change = torch._foreach_div(grads, torch._foreach_sqrt(torch._foreach_add(mean_square, epsilon)))
    torch._foreach_mul_(velocity, momentum)
    torch._foreach_add_(velocity, change, alpha=lr)
    torch._foreach_sub_(params, velocity)


def tf_ftrl(
    params: Tensors,
    grads: Tensors,
    accumulator: Tensors,
    linear: Tensors,
    lr: float,
    *,
    power: float,
    l1_strength: float,
    l2_strength: float,
    first_accumulator: float,
) -> None:
    """n' = n + g*g, from ``first_accumulator`` on; z += g - (n' ** -power - n ** -power) / lr * w; w = (sign(z) * l1 -
    z) / (n' ** -power / lr + 2 * l2) where abs(z) > l1, else 0; l1 and l2 are the two strengths"""
    for w, g, n, z in zip(params, grads, accumulator, linear):
        before = n.pow(-power)
        n.addcmul_(g, g)
        after = n.pow(-power)
        z.add_(g - (after - before) / lr * w)
        w.copy_(
            torch.where(z.abs() > l1_strength, (z.sign() * l1_strength - z) / (after / lr + 2.0 * l2_strength), 0.0)
        )


def tf_ftrl_root(
    params: Tensors,
    grads: Tensors,
    accumulator: Tensors,
    linear: Tensors,
    lr: float,
    *,
    power: float,
    l1_strength: float,
    l2_strength: float,
    first_accumulator: float,
) -> None:
    """``tf_ftrl`` for the default ``power`` of -0.5, a square root. It has its own row since it has its own kernel."""
    numbers = {"l1_strength": l1_strength, "l2_strength": l2_strength, "first_accumulator": first_accumulator}
    tf_ftrl(params, grads, accumulator, linear, lr, power=power, **numbers)


def tf_adam_weight_decay(
    params: Tensors,
    grads: Tensors,
    m: Tensors,
    v: Tensors,
    decay: Tensors,
    lr: float,
    *,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
) -> None:
    """m, v: moving means of g and g*g, not corrected; w -= lr * (m / (sqrt(v) + epsilon) + decay * w). ``decay`` is a
    state, so that variables with and without decay are clipped by one norm; it starts with ``weight_decay``."""
    average_(m, grads, beta1)
    average_(v, torch._foreach_mul(grads, grads), beta2)
    change = torch._foreach_div(m, torch._foreach_add(torch._foreach_sqrt(v), epsilon))
    torch._foreach_add_(change, [w * d for w, d in zip(params, decay)])
    torch._foreach_add_(params, change, alpha=-lr)


_OF_FTRL = (State("accumulator", start="first_accumulator"), State("linear"))

ADAM = UpdateRow(tf_adam, "element", (State("m"), State("v")), takes_count=True, is_fused="always")
RMSPROP = UpdateRow(tf_rmsprop, "element", (State("mean_square", start="first_mean_square"), State("velocity")))
FTRL = UpdateRow(tf_ftrl, "element", _OF_FTRL)
FTRL_ROOT = UpdateRow(tf_ftrl_root, "element", _OF_FTRL)
ADAM_WEIGHT_DECAY = UpdateRow(
    tf_adam_weight_decay,
    "element",
    (State("m"), State("v"), State("decay", shape=(1,), start="weight_decay")),
)

ROWS = (ADAM, RMSPROP, FTRL, FTRL_ROOT, ADAM_WEIGHT_DECAY)
