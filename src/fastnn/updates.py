"""The updates of TensorFlow 1 that ``flow.optim`` does not have, as rows for eager steps and graphs alike.

Each differs from torch's optimizer of the same name, and the difference is large at FastNN's default epsilon of 1: see
the formulas.
"""

from __future__ import annotations

import torch
from torch import Tensor

from oneflow.engine.ops.updates import update_sweeps as sweeps
from oneflow.engine.ops.updates.update import average_, laid_out_as
from oneflow.engine.ops.updates.update_recipes import Columns, Direction, OneSweep, Runs, Sweeps
from oneflow.engine.ops.updates.update_row import State, UpdateRow

Tensors = list[Tensor]


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
    state of its own, so that variables with and without decay are clipped by one norm; ``weight_decay`` is what it is
    at first."""
    average_(m, grads, beta1)
    average_(v, torch._foreach_mul(grads, grads), beta2)
    change = torch._foreach_div(m, torch._foreach_add(torch._foreach_sqrt(v), epsilon))
    torch._foreach_add_(change, [w * d for w, d in zip(params, decay)])
    torch._foreach_add_(params, change, alpha=-lr)


# ------------------------------------------------------------------ the same by sweeps over memory


def _adam(towards: Direction, lr: float, *, count: float, beta1: float, beta2: float, epsilon: float) -> list[float]:
    corrected = lr * (1.0 - beta2**count) ** 0.5 / (1.0 - beta1**count)
    return [*towards.and_decay(0.0), beta1, 1.0 - beta1, beta2, 1.0 - beta2, 1.0, corrected, 1.0, epsilon]


def _rmsprop(
    towards: Direction, lr: float, *, decay: float, momentum: float, epsilon: float, first_mean_square: float
) -> list[float]:
    return [*towards.and_decay(0.0), decay, 1.0 - decay, epsilon, lr, momentum]


def _ftrl(
    towards: Direction, lr: float, *, power: float, l1_strength: float, l2_strength: float, first_accumulator: float
) -> list[float]:
    return [*towards.and_decay(0.0), lr, l1_strength, l2_strength, -power]


def _ftrl_by_root(towards: Direction, lr: float, **numbers: float) -> list[float]:
    return _ftrl(towards, lr, **numbers)[:-1]


def _adam_weight_decay(
    run: Runs,
    columns: Columns,
    towards: Direction,
    lr: float,
    *,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
) -> None:
    *columns, decays = columns
    means = [*towards.and_decay(0.0), beta1, 1.0 - beta1, beta2, 1.0 - beta2]
    run(sweeps.ADAM, columns, [[*means, 1.0 - lr * float(decay), lr, 1.0, epsilon] for decay in decays])


_OF_FTRL = (State("accumulator", start="first_accumulator"), State("linear"))

ADAM = UpdateRow(
    tf_adam,
    "element",
    (State("m"), State("v")),
    takes_count=True,
    recipe=OneSweep(sweeps.ADAM, _adam),
    is_fused="always",
)
RMSPROP = UpdateRow(
    tf_rmsprop,
    "element",
    (State("mean_square", start="first_mean_square"), State("velocity")),
    recipe=OneSweep(sweeps.RMSPROP_MOMENTUM, _rmsprop),
)
FTRL = UpdateRow(tf_ftrl, "element", _OF_FTRL, recipe=OneSweep(sweeps.FTRL, _ftrl))
FTRL_BY_ROOT = UpdateRow(tf_ftrl, "element", _OF_FTRL, recipe=OneSweep(sweeps.FTRL_ROOT, _ftrl_by_root))
ADAM_WEIGHT_DECAY = UpdateRow(
    tf_adam_weight_decay,
    "element",
    (State("m"), State("v"), State("decay", shape=(1,), start="weight_decay")),
    recipe=Sweeps(_adam_weight_decay, (sweeps.ADAM,)),
)
