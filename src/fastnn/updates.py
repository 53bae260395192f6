"""The updates of TensorFlow 1 that ``flow.optim`` does not have, as rows for eager steps and graphs alike.

Each differs from torch's optimizer of the same name, and the difference is large at FastNN's default epsilon of 1: see the formulas.
"""

from __future__ import annotations

import torch
from torch import Tensor

from oneflow.ops.update import average_, laid_out_as
from oneflow.ops.update_row import State, UpdateRow

Tensors = list[Tensor]


def tf_adam(params: Tensors, grads: Tensors, m: Tensors, v: Tensors, lr: float, *, count: float, beta1: float, beta2: float, epsilon: float) -> None:
    """m, v: moving means of g and g*g; w -= lr * sqrt(1 - beta2 ** count) / (1 - beta1 ** count) * m / (sqrt(v) + epsilon).

    The correction stands outside of the epsilon, where torch has it inside. An infinite step turns torch's own off.
    """
    corrected = lr * (1.0 - beta2**count) ** 0.5 / (1.0 - beta1**count)
    endless = [torch.full((), float("inf"), device=params[0].device)] * len(params)
    torch._fused_adam_(
        params, laid_out_as(params, grads), m, v, [], endless, lr=corrected, beta1=beta1, beta2=beta2, weight_decay=0.0, eps=epsilon,
        amsgrad=False, maximize=False,
    )  # fmt: skip


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
    """s = decay * s + (1 - decay) * g * g, from ``first_mean_square`` on; v = momentum * v + lr * g / sqrt(s + epsilon); w -= v"""
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
    """n' = n + g*g, from ``first_accumulator`` on; z += g - (n' ** -power - n ** -power) / lr * w; w = (sign(z) * l1 - z) / (n' ** -power / lr + 2 * l2)
    where abs(z) > l1, else 0; l1 and l2 are the two strengths"""
    for w, g, n, z in zip(params, grads, accumulator, linear):
        before = n.pow(-power)
        n.addcmul_(g, g)
        after = n.pow(-power)
        z.add_(g - (after - before) / lr * w)
        w.copy_(torch.where(z.abs() > l1_strength, (z.sign() * l1_strength - z) / (after / lr + 2.0 * l2_strength), 0.0))


def tf_adam_weight_decay(
    params: Tensors, grads: Tensors, m: Tensors, v: Tensors, decay: Tensors, lr: float, *, beta1: float, beta2: float, epsilon: float, weight_decay: float
) -> None:
    """m, v: moving means of g and g*g, not corrected; w -= lr * (m / (sqrt(v) + epsilon) + decay * w). ``decay`` is a state of its own, so that
    variables with and without decay are clipped by one norm; ``weight_decay`` is what it is at first."""
    average_(m, grads, beta1)
    average_(v, torch._foreach_mul(grads, grads), beta2)
    change = torch._foreach_div(m, torch._foreach_add(torch._foreach_sqrt(v), epsilon))
    torch._foreach_add_(change, [w * d for w, d in zip(params, decay)])
    torch._foreach_add_(params, change, alpha=-lr)


ADAM = UpdateRow(tf_adam, "element", (State("m"), State("v")), takes_count=True)
RMSPROP = UpdateRow(tf_rmsprop, "element", (State("mean_square", start="first_mean_square"), State("velocity")))
FTRL = UpdateRow(tf_ftrl, "element", (State("accumulator", start="first_accumulator"), State("linear")))
ADAM_WEIGHT_DECAY = UpdateRow(tf_adam_weight_decay, "element", (State("m"), State("v"), State("decay", shape=(1,), start="weight_decay")))
