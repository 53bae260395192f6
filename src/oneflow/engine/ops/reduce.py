"""Ops that make dimensions smaller: sums, extremes, norms, and the places of the largest elements.

No result has rank 0: where every dimension goes, the shape is (1,).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor

from oneflow.engine.ops.elementwise import number_like, require_blob, require_float
from oneflow.engine.ops.row import Family, Op, require

ROWS = Family()

Axes = tuple[int, ...]
Reduction = Callable[[Tensor, Axes], Tensor]


def _dims(x: Tensor, axis: Any) -> Axes:
    """The dimensions that ``axis`` (None for all, an int or a tuple of ints) names, counted from the front."""
    given = tuple(range(x.dim())) if axis is None else (axis,) if isinstance(axis, int) else axis
    require(
        isinstance(given, (tuple, list)) and all(type(a) is int for a in given),
        f"axis is an int, a list of ints or None, got {axis!r}",
    )
    for a in given:
        require(-x.dim() <= a < x.dim(), f"axis {a} is out of range for a blob of rank {x.dim()}")
    dims = tuple(a % x.dim() for a in given)
    require(len(set(dims)) == len(dims), f"axis names a dimension twice: {axis!r}")
    return dims


def _reduce(x: Tensor, axis: Any, keepdims: bool, reduction: Reduction) -> Tensor:
    """Applies ``reduction``, which keeps the reduced dimensions with extent 1, and removes them where not asked for."""
    dims = _dims(x, axis)
    if not dims:
        # Reducing no dimension is reducing a new one of extent 1: torch reads an empty list as "all".
        return reduction(x.unsqueeze(-1), (x.dim(),)).squeeze(-1)
    out = reduction(x, dims)
    if keepdims:
        return out
    rest = [n for d, n in enumerate(x.shape) if d not in dims]
    return out.reshape(rest or [1])


def _reduction(name: str, reduction: Reduction, check: Callable[[Any], Tensor] = require_blob) -> Op:
    return ROWS.add(name, lambda x, axis=None, keepdims=False: _reduce(check(x), axis, keepdims, reduction))


def _sum(x: Tensor, dims: Axes) -> Tensor:
    return x.sum(dims, keepdim=True, dtype=x.dtype)


def _mean(x: Tensor, dims: Axes) -> Tensor:
    return _sum(x, dims) * (1.0 / prod(x.shape[d] for d in dims))


def _prod(x: Tensor, dims: Axes) -> Tensor:
    for d in dims:
        x = x.prod(d, keepdim=True, dtype=x.dtype)
    return x


def _variance(x: Tensor, dims: Axes) -> Tensor:
    """Of the whole population: divided by the count, not by the count less one."""
    return _mean(torch.square(x - _mean(x, dims)), dims)


reduce_sum = _reduction("math.reduce_sum", _sum)
reduce_mean = _reduction("math.reduce_mean", _mean, require_float)
reduce_max = _reduction("math.reduce_max", lambda x, dims: x.amax(dims, keepdim=True))
reduce_min = _reduction("math.reduce_min", lambda x, dims: x.amin(dims, keepdim=True))
reduce_prod = _reduction("math.reduce_prod", _prod)
reduce_variance = _reduction("math.reduce_variance", _variance, require_float)
reduce_std = _reduction("math.reduce_std", lambda x, dims: torch.sqrt(_variance(x, dims)), require_float)
reduce_any = _reduction("math.reduce_any", lambda x, dims: (x != 0).any(dims, keepdim=True).to(torch.int8))
reduce_all = _reduction("math.reduce_all", lambda x, dims: (x != 0).all(dims, keepdim=True).to(torch.int8))
reduce_euclidean_norm = _reduction(
    "math.reduce_euclidean_norm", lambda x, dims: torch.sqrt(_sum(torch.square(x), dims)), require_float
)
reduce_logsumexp = _reduction(
    "math.reduce_logsumexp", lambda x, dims: torch.logsumexp(x, dims, keepdim=True), require_float
)


@ROWS.op("math.l2_normalize")
def l2_normalize(x: Tensor, axis: Any, epsilon: float) -> Tensor:
    """x divided by its Euclidean norm along ``axis``, whose square counts as at least ``epsilon``."""
    dims = _dims(require_float(x), axis)
    require(len(dims) > 0, "axis names no dimension to normalise along")
    squares = _sum(torch.square(x), dims)
    return x * torch.rsqrt(torch.clamp(squares, min=epsilon))


@ROWS.op("math.reduced_shape_elem_cnt")
def reduced_shape_elem_cnt(x: Tensor, axis: Any, dtype: torch.dtype | None) -> Tensor:
    """How many elements a reduction along ``axis`` puts together, shape (1,)."""
    count = prod(x.shape[d] for d in _dims(require_blob(x), axis))
    kind = dtype or x.dtype
    return torch.full((1,), number_like(count, kind), dtype=kind, device=x.device)


@ROWS.op("math.argmax")
def argmax(x: Tensor, axis: int) -> Tensor:
    """int32 places of the largest elements, the first of equals."""
    return _reduce(require_blob(x), _one(axis), False, lambda t, dims: t.argmax(dims[0], keepdim=True).to(torch.int32))


@ROWS.op("math.top_k")
def top_k(x: Tensor, k: int, axis: int) -> Tensor:
    """int32 places of the k largest elements, largest first, of equals the earlier one first."""
    dim = _dims(require_blob(x), _one(axis))[0]
    require(type(k) is int and k >= 1, f"k is an int of at least 1, got {k!r}")
    k = min(k, x.shape[dim])
    if k == 1:
        return x.argmax(dim, keepdim=True).to(torch.int32)
    # torch.topk leaves the order of equal elements open; a stable sort does not.
    order = torch.sort(x, dim=dim, descending=True, stable=True).indices
    return order.narrow(dim, 0, k).to(torch.int32)


def _one(axis: Any) -> int:
    require(type(axis) is int, f"axis is one int, got {axis!r}")
    return axis


@ROWS.op("math.in_top_k")
def in_top_k(targets: Tensor, predictions: Tensor, k: int, dynamic: bool = False) -> Tensor:
    """int8 (N,): 1 where fewer than k classes have a larger prediction than the target class.

    A target outside the classes and a row with a value that is not finite give 0. Of ``dynamic`` inputs the sizes of
    each step are compared.
    """
    require_float(predictions)
    require(predictions.dim() == 2, f"predictions have shape (batch, classes), got {tuple(predictions.shape)}")
    require(not require_blob(targets).dtype.is_floating_point, "targets are class numbers, an integer blob; got floats")
    batch, classes = predictions.shape
    fits = targets.dim() == 1 and (targets.shape[0] == batch or dynamic and targets.is_meta)
    if fits and targets.shape[0] != batch:  # while a job is traced dynamic inputs have the shapes they can have at most
        batch = min(batch, targets.shape[0])
        targets, predictions = targets[:batch], predictions[:batch]
    require(fits, f"targets have shape ({batch},) for these predictions, got {tuple(targets.shape)}")
    require(type(k) is int and k >= 1, f"k is an int of at least 1, got {k!r}")
    known = (targets >= 0) & (targets < classes) & torch.isfinite(predictions).all(1)
    chosen = predictions.gather(1, targets.long().clamp(0, classes - 1).unsqueeze(1))
    return (known & ((predictions > chosen).sum(1) < k)).to(torch.int8)
