"""Functions of gradients around an update formula: unscale, regularize and clip them, check that they are finite,
bring them into memory order, and update a part of a variable from a sparse or a factored gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from oneflow.engine.ops.updates.rows import Linear, Tensors


def scaled(grads: Tensors, factor: float | Tensor) -> Tensors:
    """Multiplies all gradients by one factor."""
    return list(torch._foreach_mul(grads, factor))


def regularized(params: Tensors, grads: Tensors, l1: list[float], l2: list[float]) -> Tensors:
    """Returns g + l1 * sign(w) + l2 * w, with one l1 and l2 per variable."""
    return [_regularized(w, g, a, b) for w, g, a, b in zip(params, grads, l1, l2)]


def _regularized(w: Tensor, g: Tensor, l1: float, l2: float) -> Tensor:
    if l1:
        g = torch.add(g, torch.sign(w), alpha=l1)
    return torch.add(g, w, alpha=l2) if l2 else g


def all_finite(grads: Tensors) -> Tensor:
    """Returns whether all gradients are finite, as a bool tensor of rank 0."""
    # One pass where isfinite(g).all() takes several; NaNs propagate to both ends.
    ends = [end for g in grads if g.numel() for end in torch.aminmax(g)]
    return torch.isfinite(torch.stack([end.double() for end in ends])).all() if ends else torch.tensor(True)


def zero_(tensors: Tensors) -> None:
    """Sets all tensors to zero."""
    torch._foreach_zero_(tensors)


# ------------------------------------------------------------------ clipping and norms


def clipped(grads: Tensors, *, clip_norm: float, historical: bool, norm: Tensor | None = None) -> Tensors:
    """Scales all gradients by clip_norm / norm if their common norm exceeds it, or by the historical formula."""
    if not grads:
        return []
    if norm is None:
        norm = torch.linalg.vector_norm(torch.stack([n.to(torch.float64) for n in torch._foreach_norm(grads)]))
    return times(grads, clip_factor(norm, clip_norm=clip_norm, historical=historical))


def clip_factor(norm: Tensor, *, clip_norm: float, historical: bool) -> Tensor:
    """Returns the factor of ``clipped`` for gradients of a common norm."""
    return torch.clamp(1.0 / norm, max=1.0 / clip_norm) if historical else torch.clamp(clip_norm / norm, max=1.0)


def clipped_by_norm(grads: Tensors, *, max_norm: float, norm_type: float, norm: Tensor | None = None) -> Tensors:
    """Scales all gradients by max_norm / (norm + 1e-6) if that is below 1."""
    if not grads:
        return []
    return times(grads, norm_factor(common_norm(grads, norm_type) if norm is None else norm, max_norm=max_norm))


def clip_by_norm_(grads: Tensors, *, max_norm: float, norm: Tensor) -> None:
    """``clipped_by_norm`` in place, with a norm that was computed before."""
    factor = norm_factor(norm, max_norm=max_norm)
    if not _is_one(factor):
        torch._foreach_mul_(grads, factor)


def norm_factor(norm: Tensor, *, max_norm: float) -> Tensor:
    """Returns the factor of ``clipped_by_norm`` for gradients of a common norm."""
    return torch.clamp(max_norm / (norm + 1e-6), max=1.0)


def times(grads: Tensors, factor: Tensor) -> Tensors:
    """Multiplies gradients by a factor; returns them unchanged if it is known to be 1, as it mostly is."""
    return grads if _is_one(factor) else list(torch._foreach_mul(grads, factor))


def _is_one(factor: Tensor) -> bool:
    """Returns whether a factor is known to be 1. One on an accelerator is not: reading it would synchronize."""
    return type(factor) is Tensor and factor.device.type == "cpu" and factor.item() == 1.0


def local_norms(values: Sequence[Tensor]) -> Tensors:
    """Returns the norms of tensors that this rank holds whole."""
    return [torch.linalg.vector_norm(value) for value in values]


def common_norm(grads: Tensors, norm_type: float) -> Tensor:
    """Returns the p-norm of all elements of the gradients. 16-bit floats are summed in float32."""
    if any(g.dtype.itemsize < 4 for g in grads):
        grads = [g.float() if g.dtype.itemsize < 4 else g for g in grads]
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads, norm_type)), norm_type)


def norm_of(norms: Tensors, norm_type: float) -> Tensor:
    """Returns the common norm of gradients with these norms."""
    return torch.linalg.vector_norm(torch.stack(norms), norm_type)


# ------------------------------------------------------------------ memory order


def has_same_order(a: Tensor, b: Tensor) -> bool:
    """Returns whether two tensors of one shape have their elements in the same memory order. Strides of dims of size 1
    are ignored."""
    return a.stride() == b.stride() or all(size == 1 or x == y for size, x, y in zip(a.shape, a.stride(), b.stride()))


def is_dense(tensor: Tensor) -> bool:
    """Returns whether the elements are adjacent in memory, in any order of dims."""
    return (
        tensor.is_contiguous()
        or 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride())) == tensor.numel()
    )


def laid_out_as(params: Tensors, grads: Tensors) -> Tensors:
    """Returns the gradients in the strides of their variables: fused kernels read memory in order, and check
    nothing."""
    return [g if has_same_order(g, p) else torch.empty_like(p, dtype=g.dtype).copy_(g) for p, g in zip(params, grads)]


def in_memory_order(params: Tensors, grads: Tensors, *states: Tensors) -> tuple[Tensors, ...]:
    """Returns all tensors as the fused kernels take them fastest. Dense ones that are not contiguous, such as
    channels-last filters, become vectors in memory order: CPU kernels would copy them."""
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


# ------------------------------------------------------------------ parts of variables


def row_wise(
    params: Tensors, grads: Tensors, *states_and_lr: Any, function: Callable[..., None], **numbers: Any
) -> None:
    """Updates those rows of each variable whose gradient is not all zero, by ``function``; the others keep value and
    state."""
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
    """Updates one variable whose gradient is the matrix product of ``a`` and ``b``, by ``function`` in row blocks of
    ``size`` bytes. Each block of the gradient is used while it is in the cache. A ``linear`` update computes no
    gradient at all: one matrix product accumulates into the variable. The row of the update must allow it."""
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
