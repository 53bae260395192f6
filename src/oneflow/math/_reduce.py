"""``flow.math``: functions that make dimensions smaller.

``axis`` is one dimension, a list of them (negative ones count from the end) or None for all. ``keepdims`` leaves
reduced dimensions with extent 1. No result has rank 0: where every dimension goes the shape is (1,).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from oneflow.compat.spellings import spelled
from oneflow.engine.core.dtype import as_dtype
from oneflow.engine.ir.blob import Blob, emit
from oneflow.engine.ops import reduce as rows

Axis = int | Sequence[int] | None


def _axis(axis: Axis) -> Any:
    """An axis as an attribute of an op: immutable."""
    return tuple(axis) if isinstance(axis, list) else axis


@spelled("math.reduce_sum")
def reduce_sum(x: Blob, axis: Axis = None, keepdims: bool = False, name: str | None = None) -> Blob:
    """The sum along ``axis``, in the dtype of x."""
    return emit(rows.reduce_sum, x, axis=_axis(axis), keepdims=bool(keepdims), name=name)


@spelled("math.reduce_mean")
def reduce_mean(x: Blob, axis: Axis = None, keepdims: bool = False, name: str | None = None) -> Blob:
    """The mean along ``axis`` of a float blob."""
    return emit(rows.reduce_mean, x, axis=_axis(axis), keepdims=bool(keepdims), name=name)


@spelled("math.reduce_max")
def reduce_max(x: Blob, axis: Axis = None, keepdims: bool = False, name: str | None = None) -> Blob:
    """The largest element along ``axis``; equal ones share its gradient."""
    return emit(rows.reduce_max, x, axis=_axis(axis), keepdims=bool(keepdims), name=name)


@spelled("math.reduce_min")
def reduce_min(x: Blob, axis: Axis = None, keepdims: bool = False, name: str | None = None) -> Blob:
    """The smallest element along ``axis``; equal ones share its gradient."""
    return emit(rows.reduce_min, x, axis=_axis(axis), keepdims=bool(keepdims), name=name)


@spelled("math.reduce_prod")
def reduce_prod(x: Blob, axis: Axis = None, keepdims: bool = False, name: str | None = None) -> Blob:
    """The product along ``axis``, in the dtype of x."""
    return emit(rows.reduce_prod, x, axis=_axis(axis), keepdims=bool(keepdims), name=name)


@spelled("math.reduce_variance")
def reduce_variance(x: Blob, axis: Axis = None, keepdims: bool = False, name: str | None = None) -> Blob:
    """The variance along ``axis`` of a float blob: the mean of the squared distances from the mean."""
    return emit(rows.reduce_variance, x, axis=_axis(axis), keepdims=bool(keepdims), name=name)


@spelled("math.reduce_std")
def reduce_std(x: Blob, axis: Axis = None, keepdims: bool = False, name: str | None = None) -> Blob:
    """The square root of ``reduce_variance``."""
    return emit(rows.reduce_std, x, axis=_axis(axis), keepdims=bool(keepdims), name=name)


@spelled("math.reduce_any")
def reduce_any(x: Blob, axis: Axis = None, keepdims: bool = False, name: str | None = None) -> Blob:
    """int8: 1 where an element along ``axis`` is not 0."""
    return emit(rows.reduce_any, x, axis=_axis(axis), keepdims=bool(keepdims), name=name)


@spelled("math.reduce_all")
def reduce_all(x: Blob, axis: Axis = None, keepdims: bool = False, name: str | None = None) -> Blob:
    """int8: 1 where no element along ``axis`` is 0."""
    return emit(rows.reduce_all, x, axis=_axis(axis), keepdims=bool(keepdims), name=name)


@spelled("math.reduce_euclidean_norm")
def reduce_euclidean_norm(x: Blob, axis: Axis = None, keepdims: bool = False, name: str | None = None) -> Blob:
    """The square root of the sum of squares along ``axis`` of a float blob."""
    return emit(rows.reduce_euclidean_norm, x, axis=_axis(axis), keepdims=bool(keepdims), name=name)


@spelled("math.reduce_logsumexp")
def reduce_logsumexp(x: Blob, axis: Axis = None, keepdims: bool = False, name: str | None = None) -> Blob:
    """log(sum(exp(x))) along ``axis`` of a float blob, without overflow."""
    return emit(rows.reduce_logsumexp, x, axis=_axis(axis), keepdims=bool(keepdims), name=name)


# The two stages were a matter of speed over several devices, which the compiler decides here.
two_stage_reduce_max = reduce_max
two_stage_reduce_min = reduce_min


@spelled("math.reduced_shape_elem_cnt")
def reduced_shape_elem_cnt(
    x: Blob, axis: Axis = None, dtype: torch.dtype | None = None, name: str | None = None
) -> Blob:
    """How many elements a reduction along ``axis`` puts together, shape (1,), in ``dtype`` or else in that of x."""
    kind = None if dtype is None else as_dtype(dtype).torch
    return emit(rows.reduced_shape_elem_cnt, x, axis=_axis(axis), dtype=kind, name=name)


@spelled("math.argmax")
def argmax(x: Blob, axis: int = -1, name: str | None = None) -> Blob:
    """int32: where along ``axis`` the largest element is; the first of equals."""
    return emit(rows.argmax, x, axis=axis, name=name)


@spelled("math.top_k")
def top_k(x: Blob, axis: int = -1, k: int = 1, sorted: bool = True, name: str | None = None) -> Blob:
    """int32: where along ``axis`` the ``k`` largest elements are; the values themselves are not given.

    The largest comes first, of equals the earlier one; a ``k`` above the extent takes all. ``sorted=False`` only
    promises less: the result is the same.
    """
    return emit(rows.top_k, x, k=k, axis=axis, name=name)


def in_top_k(targets: Blob, predictions: Blob, k: int, name: str | None = None) -> Blob:
    """int8 (N,): 1 where the target class is among the ``k`` best of its row; classes tied at the border all count.

    ``targets`` are integers of shape (N,), ``predictions`` floats of shape (N, classes). A target that is no class, and
    a row with values that are not finite, give 0.
    """
    dynamic = {"dynamic": True} if any(isinstance(b, Blob) and b.is_dynamic for b in (targets, predictions)) else {}
    return emit(rows.in_top_k, targets, predictions, k=k, name=name, **dynamic)


@spelled("math.l2_normalize")
def l2_normalize(x: Blob, axis: Axis = None, epsilon: float = 1e-12, name: str | None = None) -> Blob:
    """x / sqrt(max(sum of squares along ``axis``, ``epsilon``))."""
    return emit(rows.l2_normalize, x, axis=_axis(axis), epsilon=float(epsilon), name=name)
