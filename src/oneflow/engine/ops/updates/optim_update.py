"""The updates of ``flow.optim``, eager and in graphs, as ``update.py`` has those of jobs: on lists of parameters, in
place, gradients read only.

The formulas are torch's where OneFlow's are the same: then they are one call of torch's fused kernel. ``count`` is the
number of the update, 1.0 at the first: there is one for all parameters of an optimizer, so no state of its own for
each. ``ROWS`` says what the compiler must know.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from oneflow.engine.ops.updates import update_recipes as recipes
from oneflow.engine.ops.updates.update import Norms, Tensors, as_they_lie, average_, fused_sgd_
from oneflow.engine.ops.updates.update_row import State, UpdateRow


def sgd(params: Tensors, grads: Tensors, lr: float, *, weight_decay: float, maximize: bool) -> None:
    """w -= lr * (g + weight_decay * w); ``maximize`` takes -g for g"""
    params, grads = as_they_lie(params, grads)
    fused_sgd_(
        params,
        grads,
        [],
        weight_decay=weight_decay,
        momentum=0.0,
        lr=lr,
        dampening=0.0,
        nesterov=False,
        maximize=maximize,
    )


def linear_sgd(lr: float, *, weight_decay: float, maximize: bool) -> tuple[float, float]:
    """What sgd makes of each: w = first * w + second * g"""
    return 1.0 - lr * weight_decay, lr if maximize else -lr


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
    """d = g + weight_decay * w; v = momentum * v + (1 - dampening) * d, but d at the first update; w -= lr * (d +
    momentum * v if nesterov else v)"""
    params, grads, momentum_buffer = as_they_lie(params, grads, momentum_buffer)
    fused_sgd_(
        params, grads, momentum_buffer, weight_decay=weight_decay, momentum=momentum, lr=lr, dampening=dampening,
        nesterov=nesterov, maximize=maximize, is_first_step=count == 1.0,
    )  # fmt: skip


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
    without the correction.

    ``weight_decay`` * w is added to g, or, ``decoupled``, to what lr is multiplied with.
    """
    kernel = torch._fused_adamw_ if decoupled else torch._fused_adam_
    params, grads, m, v = as_they_lie(params, grads, m, v)
    kernel(
        params, grads, m, v, [], _steps(params, count if do_bias_correction else math.inf), lr=lr, beta1=beta1, beta2=beta2,
        weight_decay=weight_decay, eps=epsilon, amsgrad=False, maximize=False,
    )  # fmt: skip


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
    """As adam, with the largest v so far below the root."""
    kernel = torch._fused_adamw_ if decoupled else torch._fused_adam_
    params, grads, m, v, max_v = as_they_lie(params, grads, m, v, max_v)
    kernel(
        params, grads, m, v, max_v, _steps(params, count if do_bias_correction else math.inf), lr=lr, beta1=beta1,
        beta2=beta2, weight_decay=weight_decay, eps=epsilon, amsgrad=True, maximize=False,
    )  # fmt: skip


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
    params, grads, square_sum = as_they_lie(params, grads, square_sum)
    torch._fused_adagrad_(
        params, grads, square_sum, _steps(params, count), lr=lr, lr_decay=lr_decay, weight_decay=weight_decay, eps=epsilon,
        maximize=False,
    )  # fmt: skip


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
    """d = g + weight_decay * w; s: moving mean of d*d by ``alpha``; w -= lr * d / sqrt(s + epsilon). The epsilon below
    the root is OneFlow's."""
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
    """As rmsprop, whose change of w goes into a velocity: v = momentum * v + lr * d / sqrt(s + epsilon); w -= v"""
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
    """As rmsprop with the variance s - a * a below the root, a the moving mean of d."""
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
    """Both of the two before."""
    grads = _decayed(params, grads, weight_decay)
    _move_(
        params, velocity, _by_root(grads, _variance(grads, mean_square, mean_gradient, alpha), epsilon, lr), momentum
    )


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


def _steps(params: Tensors, count: float) -> Tensors:
    """The number of the update as the fused kernels read it: one tensor for all."""
    return [torch.full((), count, device=params[0].device)] * len(params)


def _decayed(params: Tensors, grads: Tensors, weight_decay: float) -> Tensors:
    return list(torch._foreach_add(grads, params, alpha=weight_decay)) if weight_decay else grads


def _mean_square(grads: Tensors, mean_square: Tensors, alpha: float) -> Tensors:
    """Moves the mean on and gives it."""
    average_(mean_square, torch._foreach_mul(grads, grads), alpha)
    return mean_square


def _variance(grads: Tensors, mean_square: Tensors, mean_gradient: Tensors, alpha: float) -> Tensors:
    """Moves both means on and gives the variance."""
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
_SQUARE, _GRADIENT, _VELOCITY = State("mean_square"), State("mean_gradient"), State("velocity")

SGD = UpdateRow(sgd, "element", linear=linear_sgd, recipe=recipes.SGD, is_fused="always")
SGD_MOMENTUM = UpdateRow(
    sgd_momentum,
    "element",
    (State("momentum_buffer"),),
    takes_count=True,
    recipe=recipes.SGD_MOMENTUM,
    is_fused="always",
)
ADAM = UpdateRow(adam, "element", _MOMENTS, takes_count=True, recipe=recipes.ADAM, is_fused="always")
AMSGRAD = UpdateRow(
    amsgrad, "element", (*_MOMENTS, State("max_v")), takes_count=True, recipe=recipes.AMSGRAD, is_fused="always"
)
ADAGRAD = UpdateRow(
    adagrad,
    "element",
    (State("sum", start="initial_accumulator_value"),),
    takes_count=True,
    recipe=recipes.ADAGRAD,
    is_fused="always",
)
ADADELTA = UpdateRow(adadelta, "element", (_SQUARE, State("mean_square_change")), recipe=recipes.ADADELTA)
RMSPROP = UpdateRow(rmsprop, "element", (_SQUARE,), recipe=recipes.RMSPROP)
RMSPROP_MOMENTUM = UpdateRow(rmsprop_momentum, "element", (_SQUARE, _VELOCITY), recipe=recipes.RMSPROP_MOMENTUM)
RMSPROP_CENTERED = UpdateRow(rmsprop_centered, "element", (_SQUARE, _GRADIENT), recipe=recipes.RMSPROP_CENTERED)
RMSPROP_CENTERED_MOMENTUM = UpdateRow(
    rmsprop_centered_momentum, "element", (_SQUARE, _GRADIENT, _VELOCITY), recipe=recipes.RMSPROP_CENTERED_MOMENTUM
)
LAMB = UpdateRow(lamb, "norms", _MOMENTS, row_wise=True, takes_count=True, recipe=recipes.LAMB)

ROWS = (
    *(SGD, SGD_MOMENTUM, ADAM, AMSGRAD, ADAGRAD, ADADELTA),
    *(RMSPROP, RMSPROP_MOMENTUM, RMSPROP_CENTERED, RMSPROP_CENTERED_MOMENTUM, LAMB),
)
