"""Optimizer updates on lists of variables, in place: the last ops of a train step.

Each takes the variables, their gradients, one list per kind of state, the learning rate of the step and fixed numbers.
Gradients are read only. Where torch has a fused kernel for a formula, it is used. ``ROWS`` says what the compiler must
know of each. These are the updates of jobs; those of ``flow.optim`` stand in ``optim_update.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from oneflow.engine.ops.updates import update_recipes as recipes
from oneflow.engine.ops.updates.native_update import is_dense, lies_as
from oneflow.engine.ops.updates.update_row import Linear, State, UpdateRow

Tensors = list[Tensor]
Norms = Callable[[Sequence[Tensor]], Tensors]
"""The norm of each of some tensors; of whole ones, where a rank holds parts."""


def laid_out_as(params: Tensors, grads: Tensors) -> Tensors:
    """The gradients in the strides of their variables: the fused kernels go through memory, not through indices, and
    check nothing."""
    return [g if lies_as(g, p) else torch.empty_like(p, dtype=g.dtype).copy_(g) for p, g in zip(params, grads)]


def as_they_lie(params: Tensors, grads: Tensors, *states: Tensors) -> tuple[Tensors, ...]:
    """Variables, their gradients and states as the fused kernels take them fastest: those that are dense in another
    order than that of their dims, such as filters in channels_last memory, as vectors in the order of memory. Kernels
    of the CPU copy what is not contiguous."""
    lists = (params, laid_out_as(params, grads), *states)
    places = [
        i
        for i, param in enumerate(params)
        if not param.is_contiguous() and param.device.type == "cpu" and is_dense(param)
    ]
    if not places:
        return lists
    copies = tuple(list(tensors) for tensors in lists)
    for tensors in copies:
        for i in places:
            tensors[i] = tensors[i].as_strided((params[i].numel(),), (1,))
    return copies


def fused_sgd_(
    params: Tensors, grads: Tensors, velocity: Tensors, *, is_first_step: bool = False, **numbers: Any
) -> None:
    """torch's fused kernel. On a CPU it gets short floats wrong, from 16 elements on: they take the way over
    float32."""
    if not any(p.itemsize < 4 and p.device.type == "cpu" for p in params):
        torch._fused_sgd_(params, grads, velocity, is_first_step=is_first_step, **numbers)
        return
    wide, wide_velocity = ([tensor.float() for tensor in tensors] for tensors in (params, velocity))
    torch._fused_sgd_(wide, [g.float() for g in grads], wide_velocity, is_first_step=is_first_step, **numbers)
    torch._foreach_copy_([*params, *velocity], [*wide, *wide_velocity])


def naive(params: Tensors, grads: Tensors, lr: float, *, weight_decay: float, l2: float = 0.0) -> None:
    """w -= lr * (g + (weight_decay + l2) * w)"""
    params, grads = as_they_lie(params, grads)
    fused_sgd_(
        params,
        grads,
        [],
        weight_decay=weight_decay + l2,
        momentum=0.0,
        lr=lr,
        dampening=0.0,
        nesterov=False,
        maximize=False,
    )


def linear_naive(lr: float, *, weight_decay: float, l2: float = 0.0) -> tuple[float, float]:
    """What naive makes of each: w = first * w + second * g"""
    return 1.0 - lr * (weight_decay + l2), -lr


def momentum(
    params: Tensors, grads: Tensors, velocity: Tensors, lr: float, *, beta: float, weight_decay: float, l2: float = 0.0
) -> None:
    """v = beta * v - lr * (g + l2 * w); w += v - lr * weight_decay * w; not both of weight_decay and l2

    torch's kernel computes v = momentum * v + (1 - dampening) * (-g + its weight decay * w) under ``maximize`` and w -=
    rate * v, which is this formula for dampening = 1 - lr, a weight decay of -l2 and a rate of -1.
    """
    if weight_decay:
        torch._foreach_mul_(params, 1.0 - lr * weight_decay)
    params, grads, velocity = as_they_lie(params, grads, velocity)
    fused_sgd_(
        params,
        grads,
        velocity,
        weight_decay=-l2,
        momentum=beta,
        lr=-1.0,
        dampening=1.0 - lr,
        nesterov=False,
        maximize=True,
    )


def adam(
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
    """m, v: moving means of g and g*g; w -= lr * (m / (sqrt(v) + epsilon) + weight_decay * w). Bias correction is in
    ``lr``.

    An infinite step count turns torch's own correction off: 1 - beta ** inf is 1.
    """
    steps = [torch.full((), float("inf"), device=p.device) for p in params]
    params, grads, m, v = as_they_lie(params, grads, m, v)
    torch._fused_adamw_(
        params,
        grads,
        m,
        v,
        [],
        steps,
        lr=lr,
        beta1=beta1,
        beta2=beta2,
        weight_decay=weight_decay,
        eps=epsilon,
        amsgrad=False,
        maximize=False,
    )


def rmsprop(
    params: Tensors, grads: Tensors, mean_square: Tensors, lr: float, *, decay_rate: float, epsilon: float
) -> None:
    """s = decay_rate * s + (1 - decay_rate) * g * g; w -= lr * g / sqrt(s + epsilon)"""
    average_(mean_square, torch._foreach_mul(grads, grads), decay_rate)
    _descend_(params, grads, torch._foreach_add(mean_square, epsilon), lr)


def rmsprop_centered(
    params: Tensors,
    grads: Tensors,
    mean_square: Tensors,
    mean_gradient: Tensors,
    lr: float,
    *,
    decay_rate: float,
    epsilon: float,
) -> None:
    """As rmsprop with the variance s - a * a below the root, a the moving mean of g."""
    average_(mean_square, torch._foreach_mul(grads, grads), decay_rate)
    average_(mean_gradient, grads, decay_rate)
    variance = torch._foreach_sub(mean_square, torch._foreach_mul(mean_gradient, mean_gradient))
    _descend_(params, grads, torch._foreach_add(variance, epsilon), lr)


def local_norms(values: Sequence[Tensor]) -> Tensors:
    """The norms of tensors that are whole here."""
    return [torch.linalg.vector_norm(value) for value in values]


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


def lamb(
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
    """Adam's corrected direction d, scaled by |w| / |d| for each variable; beta*_t hold the running powers of the
    betas."""
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


def row_wise(
    params: Tensors, grads: Tensors, *states_and_lr: Any, function: Callable[..., None], **numbers: Any
) -> None:
    """Another update for the rows of each variable whose gradient is not all zero; the others keep value and state."""
    *states, lr = states_and_lr
    for i, (w, g) in enumerate(zip(params, grads)):
        rows = g.reshape(g.shape[0], -1).any(1).nonzero().flatten()
        kept = [state[i] for state in states]
        parts = [t[rows] if t.shape == w.shape else t for t in (w, g, *kept)]
        function(*([part] for part in parts), lr, **numbers)
        for whole, part in zip((w, *kept), (parts[0], *parts[2:])):
            if whole.shape == w.shape:
                whole.index_copy_(0, rows, part)


def by_rows(
    params: Tensors,
    a: Tensor,
    b: Tensor,
    *states_and_lr: Any,
    function: Callable[..., None],
    size: int,
    linear: Linear | None = None,
    **numbers: Any,
) -> None:
    """Another update, of one variable whose gradient is the matrix product of ``a`` and ``b``, for rows of so many
    bytes at a time. The gradient is never whole: each part of it is made, and used while it is in the cache; of a
    ``linear`` update not even a part is made, since a product is added to a matrix as it is computed. Only for updates
    that may be done by rows."""
    (weight,) = params
    *states, lr = states_and_lr
    if linear is not None and weight.dtype == a.dtype and weight.itemsize >= 4:
        of_weight, of_gradient = linear(lr, **numbers)
        weight.addmm_(a, b, beta=of_weight, alpha=of_gradient)
        return
    rows = max(1, size // max(1, b.shape[1] * b.itemsize))
    for start in range(0, weight.shape[0], rows):
        part = slice(start, start + rows)
        function(
            [weight[part]],
            [torch.mm(a[part], b)],
            *([state[part] for state in column] for column in states),
            lr,
            **numbers,
        )


def scaled(grads: Tensors, factor: float | Tensor) -> Tensors:
    """The gradients times one number."""
    return list(torch._foreach_mul(grads, factor))


def regularized(params: Tensors, grads: Tensors, l1: list[float], l2: list[float]) -> Tensors:
    """g + l1 * sign(w) + l2 * w, with the numbers of each variable."""
    return [_regularized(w, g, a, b) for w, g, a, b in zip(params, grads, l1, l2)]


def _regularized(w: Tensor, g: Tensor, l1: float, l2: float) -> Tensor:
    if l1:
        g = torch.add(g, torch.sign(w), alpha=l1)
    return torch.add(g, w, alpha=l2) if l2 else g


def clipped(grads: Tensors, *, clip_norm: float, historical: bool, norm: Tensor | None = None) -> Tensors:
    """All gradients scaled by clip_norm / norm where their common norm is above it (or by the historical formula)."""
    if not grads:
        return []
    if norm is None:
        norm = torch.linalg.vector_norm(torch.stack([n.to(torch.float64) for n in torch._foreach_norm(grads)]))
    return times(grads, clip_factor(norm, clip_norm=clip_norm, historical=historical))


def clip_factor(norm: Tensor, *, clip_norm: float, historical: bool) -> Tensor:
    """What ``clipped`` multiplies gradients of a common norm with."""
    return torch.clamp(1.0 / norm, max=1.0 / clip_norm) if historical else torch.clamp(clip_norm / norm, max=1.0)


def clipped_by_norm(grads: Tensors, *, max_norm: float, norm_type: float, norm: Tensor | None = None) -> Tensors:
    """All gradients scaled so that their common norm is at most ``max_norm``: by max_norm / (norm + 1e-6) where that is
    below 1."""
    if not grads:
        return []
    return times(grads, norm_factor(common_norm(grads, norm_type) if norm is None else norm, max_norm=max_norm))


def clip_by_norm_(grads: Tensors, *, max_norm: float, norm: Tensor) -> None:
    """The same in place, by a norm that was computed before."""
    factor = norm_factor(norm, max_norm=max_norm)
    if not _is_one(factor):
        torch._foreach_mul_(grads, factor)


def times(grads: Tensors, factor: Tensor) -> Tensors:
    """The gradients times a factor that is seldom other than 1; themselves where it is known to be 1."""
    return grads if _is_one(factor) else list(torch._foreach_mul(grads, factor))


def _is_one(factor: Tensor) -> bool:
    """Whether a number is known to be 1. A device would have to be waited for, so of its numbers nothing is known."""
    return type(factor) is Tensor and factor.device.type == "cpu" and factor.item() == 1.0


def norm_factor(norm: Tensor, *, max_norm: float) -> Tensor:
    """What ``clipped_by_norm`` multiplies gradients of a common norm with."""
    return torch.clamp(max_norm / (norm + 1e-6), max=1.0)


def common_norm(grads: Tensors, norm_type: float) -> Tensor:
    """The p-norm of all elements of some gradients, for p of 1, 2, infinity or any other. Short floats are summed as
    float32."""
    if any(g.dtype.itemsize < 4 for g in grads):
        grads = [g.float() if g.dtype.itemsize < 4 else g for g in grads]
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads, norm_type)), norm_type)


def norm_of(norms: Tensors, norm_type: float) -> Tensor:
    """The common norm of gradients that have these norms."""
    return torch.linalg.vector_norm(torch.stack(norms), norm_type)


def zero_(tensors: Tensors) -> None:
    """Makes all of them zero."""
    torch._foreach_zero_(tensors)


def all_finite(grads: Tensors) -> Tensor:
    """Whether every gradient is a finite number, as a bool tensor of rank 0."""
    ends = [
        end for g in grads if g.numel() for end in torch.aminmax(g)
    ]  # of a NaN both are: one pass, where isfinite(g).all() makes several
    return torch.isfinite(torch.stack([end.double() for end in ends])).all() if ends else torch.tensor(True)


def average_(means: Tensors, values: Sequence[Tensor], decay: float) -> None:
    torch._foreach_mul_(means, decay)
    torch._foreach_add_(means, list(values), alpha=1.0 - decay)


def _descend_(params: Tensors, grads: Tensors, squares: Sequence[Tensor], lr: float) -> None:
    torch._foreach_addcdiv_(params, grads, list(torch._foreach_sqrt(list(squares))), value=-lr)


_MOMENTS = (State("m"), State("v"))
_BETA_POWERS = (State("beta1_t", (1,), start="beta1"), State("beta2_t", (1,), start="beta2"))

NAIVE = UpdateRow(naive, "element", adds_l2="always", linear=linear_naive, recipe=recipes.NAIVE, is_fused="always")
MOMENTUM = UpdateRow(
    momentum,
    "element",
    (State("momentum"),),
    adds_l2="without weight decay",
    recipe=recipes.MOMENTUM,
    is_fused="without weight decay",
)
ADAM = UpdateRow(adam, "element", _MOMENTS, recipe=recipes.JOB_ADAM, is_fused="always")
RMSPROP = UpdateRow(rmsprop, "element", (State("mean_square"),), recipe=recipes.JOB_RMSPROP)
RMSPROP_CENTERED = UpdateRow(
    rmsprop_centered, "element", (State("mean_square"), State("mean_gradient")), recipe=recipes.JOB_RMSPROP_CENTERED
)
LARS = UpdateRow(lars, "norms", (State("momentum"),), row_wise=True, recipe=recipes.LARS)
LAMB = UpdateRow(lamb, "norms", (*_MOMENTS, *_BETA_POWERS), row_wise=True, recipe=recipes.JOB_LAMB)

ROWS = (NAIVE, MOMENTUM, ADAM, RMSPROP, RMSPROP_CENTERED, LARS, LAMB)
