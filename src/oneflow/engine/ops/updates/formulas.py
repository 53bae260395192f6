"""Optimizer update formulas on lists of variables, in place, and their rows in the update table.

Each function takes the variables, their gradients, one list per state, the learning rate and fixed numbers. Gradients
are read only. Where torch has a fused kernel for a formula, it is used. ``count`` is the number of the update, from
1.0. ``ROWS`` has a row for each, for jobs (``oneflow/optimizer``) and tensors (``oneflow/optim``) alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from oneflow.engine.ops.updates.gradients import in_memory_order
from oneflow.engine.ops.updates.rows import Norms, State, Tensors, UpdateRow

# ------------------------------------------------------------------ SGD


def sgd(
    params: Tensors, grads: Tensors, lr: float, *, weight_decay: float, maximize: bool = False, l2: float = 0.0
) -> None:
    """w -= lr * (g + (weight_decay + l2) * w); ``maximize`` negates g"""
    params, grads = in_memory_order(params, grads)
    _fused_sgd_(
        params,
        grads,
        [],
        weight_decay=weight_decay + l2,
        momentum=0.0,
        lr=lr,
        dampening=0.0,
        nesterov=False,
        maximize=maximize,
    )


def linear_sgd(lr: float, *, weight_decay: float, maximize: bool = False, l2: float = 0.0) -> tuple[float, float]:
    """The factors of ``sgd``: w = first * w + second * g"""
    return 1.0 - lr * (weight_decay + l2), lr if maximize else -lr


def sgd_momentum(
    params: Tensors,
    grads: Tensors,
    momentum_buffer: Tensors,
    lr: float,
    *,
    count: float,
    momentum: float,
    dampening: float,
    nesterov: bool,
    weight_decay: float,
    maximize: bool,
) -> None:
    """d = g + weight_decay * w; v = momentum * v + (1 - dampening) * d, but v = d at the first update; w -= lr * (d +
    momentum * v if nesterov else v); ``maximize`` negates g"""
    _fused_sgd_(
        *in_memory_order(params, grads, momentum_buffer),
        weight_decay=weight_decay,
        momentum=momentum,
        lr=lr,
        dampening=dampening,
        nesterov=nesterov,
        maximize=maximize,
        is_first_step=count == 1.0,
    )


def momentum(
    params: Tensors, grads: Tensors, velocity: Tensors, lr: float, *, beta: float, weight_decay: float, l2: float = 0.0
) -> None:
    """v = beta * v - lr * (g + l2 * w); w += v - lr * weight_decay * w; not both of weight_decay and l2

    With ``maximize``, torch's kernel computes v = momentum * v + (1 - dampening) * (-g + weight_decay * w) and w -=
    rate * v: this formula for dampening = 1 - lr, weight_decay = -l2 and rate = -1.
    """
    if weight_decay:
        torch._foreach_mul_(params, 1.0 - lr * weight_decay)
    _fused_sgd_(
        *in_memory_order(params, grads, velocity),
        weight_decay=-l2,
        momentum=beta,
        lr=-1.0,
        dampening=1.0 - lr,
        nesterov=False,
        maximize=True,
    )


def _fused_sgd_(
    params: Tensors, grads: Tensors, velocity: Tensors, *, is_first_step: bool = False, **numbers: Any
) -> None:
    """Calls torch's fused kernel. On a CPU it is wrong for 16-bit floats, from 16 elements on: they are computed in
    float32."""
    if not any(p.itemsize < 4 and p.device.type == "cpu" for p in params):
        torch._fused_sgd_(params, grads, velocity, is_first_step=is_first_step, **numbers)
        return
    wide, wide_velocity = ([tensor.float() for tensor in tensors] for tensors in (params, velocity))
    torch._fused_sgd_(wide, [g.float() for g in grads], wide_velocity, is_first_step=is_first_step, **numbers)
    torch._foreach_copy_([*params, *velocity], [*wide, *wide_velocity])


# ------------------------------------------------------------------ Adam


def adam(
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
    weight_decay: float,
    decoupled: bool,
    do_bias_correction: bool,
) -> None:
    """m, v: moving means of g and g*g; w -= lr * (m / c1) / (sqrt(v / c2) + epsilon), where c = 1 - beta ** count, or 1
    without bias correction.

    ``weight_decay`` * w is added to g, or, if ``decoupled``, to the factor of lr.
    """
    count = count if do_bias_correction else math.inf
    numbers = {"beta1": beta1, "beta2": beta2, "eps": epsilon, "weight_decay": weight_decay}
    fused_adam_(params, grads, m, v, None, lr, count, decoupled=decoupled, **numbers)


def job_adam(
    params: Tensors,
    grads: Tensors,
    m: Tensors,
    v: Tensors,
    lr: float,
    *,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
) -> None:
    """m, v: moving means of g and g*g; w -= lr * (m / (sqrt(v) + epsilon) + weight_decay * w). Any bias correction is
    part of ``lr``."""
    numbers = {"beta1": beta1, "beta2": beta2, "eps": epsilon, "weight_decay": weight_decay}
    fused_adam_(params, grads, m, v, None, lr, math.inf, decoupled=True, **numbers)


def amsgrad(
    params: Tensors,
    grads: Tensors,
    m: Tensors,
    v: Tensors,
    max_v: Tensors,
    lr: float,
    *,
    count: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
    decoupled: bool,
    do_bias_correction: bool,
) -> None:
    """``adam`` with the largest v so far under the root."""
    count = count if do_bias_correction else math.inf
    numbers = {"beta1": beta1, "beta2": beta2, "eps": epsilon, "weight_decay": weight_decay}
    fused_adam_(params, grads, m, v, max_v, lr, count, decoupled=decoupled, **numbers)


def fused_adam_(
    params: Tensors,
    grads: Tensors,
    m: Tensors,
    v: Tensors,
    max_v: Tensors | None,
    lr: float,
    count: float,
    *,
    decoupled: bool,
    **numbers: float,
) -> None:
    """Calls torch's fused kernel. An infinite ``count`` turns its bias correction off: 1 - beta ** inf is 1."""
    lists = in_memory_order(params, grads, m, v, *([] if max_v is None else [max_v]))
    kernel: Any = torch._fused_adamw_ if decoupled else torch._fused_adam_
    kernel(
        *lists[:4],
        [] if max_v is None else lists[4],
        _steps(params, count),
        lr=lr,
        amsgrad=max_v is not None,
        maximize=False,
        **numbers,
    )


def _steps(params: Tensors, count: float) -> Tensors:
    """Returns the step counts that fused kernels read: one tensor for all variables."""
    return [torch.full((), count, device=params[0].device)] * len(params)


# ------------------------------------------------------------------ Adagrad, Adadelta, RMSprop


def adagrad(
    params: Tensors,
    grads: Tensors,
    square_sum: Tensors,
    lr: float,
    *,
    count: float,
    lr_decay: float,
    weight_decay: float,
    epsilon: float,
    initial_accumulator_value: float,
) -> None:
    """d = g + weight_decay * w; s += d * d, from ``initial_accumulator_value`` on; w -= lr / (1 + (count - 1) *
    lr_decay) * d / (sqrt(s) + epsilon)"""
    params, grads, square_sum = in_memory_order(params, grads, square_sum)
    torch._fused_adagrad_(
        params,
        grads,
        square_sum,
        _steps(params, count),
        lr=lr,
        lr_decay=lr_decay,
        weight_decay=weight_decay,
        eps=epsilon,
        maximize=False,
    )


def adadelta(
    params: Tensors,
    grads: Tensors,
    mean_square: Tensors,
    mean_square_change: Tensors,
    lr: float,
    *,
    rho: float,
    epsilon: float,
    weight_decay: float,
    maximize: bool,
) -> None:
    """s: moving mean of g*g; c = sqrt(u + epsilon) / sqrt(s + epsilon) * g; u: moving mean of c*c; w -= lr * c"""
    grads = _decayed(params, list(torch._foreach_neg(grads)) if maximize else grads, weight_decay)
    average_(mean_square, torch._foreach_mul(grads, grads), rho)
    change = torch._foreach_sqrt(torch._foreach_add(mean_square_change, epsilon))
    torch._foreach_div_(change, torch._foreach_sqrt(torch._foreach_add(mean_square, epsilon)))
    torch._foreach_mul_(change, grads)
    average_(mean_square_change, torch._foreach_mul(change, change), rho)
    torch._foreach_add_(params, change, alpha=-lr)


def rmsprop(
    params: Tensors,
    grads: Tensors,
    mean_square: Tensors,
    lr: float,
    *,
    alpha: float,
    epsilon: float,
    weight_decay: float,
) -> None:
    """d = g + weight_decay * w; s: moving mean of d*d by ``alpha``; w -= lr * d / sqrt(s + epsilon). As in OneFlow,
    epsilon is under the root."""
    grads = _decayed(params, grads, weight_decay)
    torch._foreach_sub_(params, _by_root(grads, _mean_square(grads, mean_square, alpha), epsilon, lr))


def rmsprop_momentum(
    params: Tensors,
    grads: Tensors,
    mean_square: Tensors,
    velocity: Tensors,
    lr: float,
    *,
    alpha: float,
    epsilon: float,
    weight_decay: float,
    momentum: float,
) -> None:
    """``rmsprop`` with a velocity: v = momentum * v + lr * d / sqrt(s + epsilon); w -= v"""
    grads = _decayed(params, grads, weight_decay)
    _move_(params, velocity, _by_root(grads, _mean_square(grads, mean_square, alpha), epsilon, lr), momentum)


def rmsprop_centered(
    params: Tensors,
    grads: Tensors,
    mean_square: Tensors,
    mean_gradient: Tensors,
    lr: float,
    *,
    alpha: float,
    epsilon: float,
    weight_decay: float,
) -> None:
    """``rmsprop`` with the variance s - a * a under the root, where a is the moving mean of d."""
    grads = _decayed(params, grads, weight_decay)
    torch._foreach_sub_(params, _by_root(grads, _variance(grads, mean_square, mean_gradient, alpha), epsilon, lr))


def rmsprop_centered_momentum(
    params: Tensors,
    grads: Tensors,
    mean_square: Tensors,
    mean_gradient: Tensors,
    velocity: Tensors,
    lr: float,
    *,
    alpha: float,
    epsilon: float,
    weight_decay: float,
    momentum: float,
) -> None:
    """``rmsprop_centered`` with the velocity of ``rmsprop_momentum``."""
    grads = _decayed(params, grads, weight_decay)
    _move_(
        params, velocity, _by_root(grads, _variance(grads, mean_square, mean_gradient, alpha), epsilon, lr), momentum
    )


# ------------------------------------------------------------------ scaled by norms


def lars(
    params: Tensors,
    grads: Tensors,
    velocity: Tensors,
    lr: float,
    *,
    beta: float,
    epsilon: float,
    coefficient: float,
    weight_decay: float,
    norms: Norms,
) -> None:
    """Momentum whose rate is, for each variable, lr * coefficient * |w| / (epsilon + |g| + weight_decay * |w|)."""
    for w, g, v, w_norm, g_norm in zip(params, grads, velocity, norms(params), norms(grads)):
        ratio = coefficient * w_norm / (epsilon + g_norm + weight_decay * w_norm)
        rate = lr * torch.where((w_norm == 0) | (g_norm == 0), torch.ones_like(ratio), ratio)
        v.mul_(beta).sub_(g * rate)
        w.add_(v - rate * weight_decay * w)


def job_lamb(
    params: Tensors,
    grads: Tensors,
    m: Tensors,
    v: Tensors,
    beta1_t: Tensors,
    beta2_t: Tensors,
    lr: float,
    *,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
    norms: Norms,
) -> None:
    """``lamb`` with decoupled decay and bias correction; the states beta*_t hold the powers of the betas."""
    torch._foreach_mul_(beta1_t, beta1)
    torch._foreach_mul_(beta2_t, beta2)
    average_(m, grads, beta1)
    average_(v, torch._foreach_mul(grads, grads), beta2)
    directions = [
        (m_w / (1.0 - b1)) / ((v_w / (1.0 - b2)).sqrt_() + epsilon) for m_w, v_w, b1, b2 in zip(m, v, beta1_t, beta2_t)
    ]
    for w, direction, w_norm, d_norm in zip(params, directions, norms(params), norms(directions)):
        trust = torch.where((w_norm > 0) & (d_norm > 0), w_norm / d_norm, torch.ones_like(w_norm))
        w.sub_(lr * trust * (direction + weight_decay * w))


def lamb(
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
    weight_decay: float,
    decoupled: bool,
    do_bias_correction: bool,
    norms: Norms,
) -> None:
    """Adam's direction d, and the decay when it is ``decoupled``, scaled by |w| / |d| for each variable: w -= lr * |w|
    / |d| * (d + weight_decay * w).

    The ratio is 1 where a norm is 0. Not ``decoupled``, the decay is added to the gradient. As in the LAMB of jobs, |d|
    is without the decay.
    """
    if not decoupled:
        grads, weight_decay = _decayed(params, grads, weight_decay), 0.0
    average_(m, grads, beta1)
    average_(v, torch._foreach_mul(grads, grads), beta2)
    c1, c2 = (1.0 - beta1**count, 1.0 - beta2**count) if do_bias_correction else (1.0, 1.0)
    roots = torch._foreach_add(torch._foreach_sqrt(torch._foreach_div(v, c2)), epsilon)
    directions = list(torch._foreach_div(torch._foreach_div(m, c1), roots))
    w_norms, d_norms = torch.stack(norms(params)), torch.stack(norms(directions))
    trust = torch.where((w_norms > 0) & (d_norms > 0), w_norms / d_norms, torch.ones_like(w_norms))
    changes = list(_decayed(params, directions, weight_decay))
    torch._foreach_mul_(changes, list((trust * lr).unbind()))
    torch._foreach_sub_(params, changes)


# ------------------------------------------------------------------ helpers


def average_(means: Tensors, values: Sequence[Tensor], decay: float) -> None:
    """means = decay * means + (1 - decay) * values"""
    torch._foreach_mul_(means, decay)
    torch._foreach_add_(means, list(values), alpha=1.0 - decay)


def _decayed(params: Tensors, grads: Tensors, weight_decay: float) -> Tensors:
    return list(torch._foreach_add(grads, params, alpha=weight_decay)) if weight_decay else grads


def _mean_square(grads: Tensors, mean_square: Tensors, alpha: float) -> Tensors:
    """Updates the moving mean and returns it."""
    average_(mean_square, torch._foreach_mul(grads, grads), alpha)
    return mean_square


def _variance(grads: Tensors, mean_square: Tensors, mean_gradient: Tensors, alpha: float) -> Tensors:
    """Updates both moving means and returns the variance."""
    average_(mean_gradient, grads, alpha)
    squares = _mean_square(grads, mean_square, alpha)
    return list(torch._foreach_sub(squares, torch._foreach_mul(mean_gradient, mean_gradient)))


def _by_root(grads: Tensors, squares: Tensors, epsilon: float, lr: float) -> Tensors:
    """lr * g / sqrt(s + epsilon)"""
    change = list(torch._foreach_div(grads, torch._foreach_sqrt(torch._foreach_add(squares, epsilon))))
    torch._foreach_mul_(change, lr)
    return change


def _move_(params: Tensors, velocity: Tensors, change: list[Tensor], momentum: float) -> None:
    torch._foreach_mul_(velocity, momentum)
    torch._foreach_add_(velocity, change)
    torch._foreach_sub_(params, velocity)


_MOMENTS = (State("m"), State("v"))
_BETA_POWERS = (State("beta1_t", (1,), start="beta1"), State("beta2_t", (1,), start="beta2"))
_SQUARE, _GRADIENT, _VELOCITY = State("mean_square"), State("mean_gradient"), State("velocity")

SGD = UpdateRow(sgd, "element", adds_l2="always", linear=linear_sgd, is_fused="always")
SGD_MOMENTUM = UpdateRow(sgd_momentum, "element", (State("momentum_buffer"),), takes_count=True, is_fused="always")
MOMENTUM = UpdateRow(
    momentum,
    "element",
    (State("momentum"),),
    adds_l2="without weight decay",
    is_fused="without weight decay",
)
ADAM = UpdateRow(adam, "element", _MOMENTS, takes_count=True, is_fused="always")
JOB_ADAM = UpdateRow(job_adam, "element", _MOMENTS, is_fused="always")
AMSGRAD = UpdateRow(amsgrad, "element", (*_MOMENTS, State("max_v")), takes_count=True, is_fused="always")
ADAGRAD = UpdateRow(
    adagrad, "element", (State("sum", start="initial_accumulator_value"),), takes_count=True, is_fused="always"
)
ADADELTA = UpdateRow(adadelta, "element", (_SQUARE, State("mean_square_change")))
RMSPROP = UpdateRow(rmsprop, "element", (_SQUARE,))
RMSPROP_MOMENTUM = UpdateRow(rmsprop_momentum, "element", (_SQUARE, _VELOCITY))
RMSPROP_CENTERED = UpdateRow(rmsprop_centered, "element", (_SQUARE, _GRADIENT))
RMSPROP_CENTERED_MOMENTUM = UpdateRow(rmsprop_centered_momentum, "element", (_SQUARE, _GRADIENT, _VELOCITY))
LARS = UpdateRow(lars, "norms", (State("momentum"),), row_wise=True)
LAMB = UpdateRow(lamb, "norms", _MOMENTS, row_wise=True, takes_count=True)
JOB_LAMB = UpdateRow(job_lamb, "norms", (*_MOMENTS, *_BETA_POWERS), row_wise=True)

ROWS = (
    *(SGD, SGD_MOMENTUM, MOMENTUM, ADAM, JOB_ADAM, AMSGRAD, ADAGRAD, ADADELTA),
    *(RMSPROP, RMSPROP_MOMENTUM, RMSPROP_CENTERED, RMSPROP_CENTERED_MOMENTUM, LARS, LAMB, JOB_LAMB),
)
