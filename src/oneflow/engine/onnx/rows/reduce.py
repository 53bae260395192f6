"""Emitters of ``oneflow.engine.ops.reduce``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from oneflow.engine.onnx.builder import Builder, Operand, Wire
from oneflow.engine.onnx.family import Emitters
from oneflow.engine.onnx.rows.sort import ordered
from oneflow.engine.ops.array import axes_of, axis_of

EMITTERS = Emitters()

Reduction = Callable[[Builder, Wire, list[int]], Wire]
"""Reduces dims, which stay with size 1."""


def _dims(x: Operand, axis: Any) -> list[int]:
    given = range(x.rank) if axis is None else [axis] if isinstance(axis, int) else axis
    return list(axes_of(given, x.rank))


def _add(name: str, reduction: Reduction) -> None:
    def emit(b: Builder, x: Operand, axis: Any = None, keepdims: bool = False) -> Wire:
        dims = _dims(x, axis)
        if not dims:
            # Reducing no dim is reducing a new one of size 1.
            return b.reshape_like(reduction(b, b.unsqueeze(x, x.rank), [x.rank]), b.result)
        out = reduction(b, x, dims)
        return out if keepdims else b.reshape_like(out, b.result)

    EMITTERS.add(name, emit)


def _plain(kind: str) -> Reduction:
    """ONNX's own reduction. Runtimes have no kernels of 8-bit integers."""

    def reduction(b: Builder, x: Wire, dims: list[int]) -> Wire:
        narrow = x.dtype in (torch.int8, torch.uint8)
        return b.cast(b.reduce(kind, b.cast(x, torch.int32) if narrow else x, dims), x.dtype)

    return reduction


def _square(b: Builder, x: Wire) -> Wire:
    return b.node("Mul", x, x)


def _variance(b: Builder, x: Wire, dims: list[int]) -> Wire:
    centred = b.node("Sub", x, b.reduce("ReduceMean", x, dims))
    return b.reduce("ReduceMean", _square(b, centred), dims)


def _truth(kind: str) -> Reduction:
    def reduction(b: Builder, x: Wire, dims: list[int]) -> Wire:
        return b.cast(b.reduce(kind, b.cast(b.truth(x), torch.int32), dims), torch.int8)

    return reduction


_add("math.reduce_sum", _plain("ReduceSum"))
_add("math.reduce_mean", _plain("ReduceMean"))
_add("math.reduce_max", _plain("ReduceMax"))
_add("math.reduce_min", _plain("ReduceMin"))
_add("math.reduce_prod", _plain("ReduceProd"))
_add("math.reduce_logsumexp", _plain("ReduceLogSumExp"))
_add("math.reduce_variance", _variance)
_add("math.reduce_std", lambda b, x, dims: b.node("Sqrt", _variance(b, x, dims)))
_add("math.reduce_euclidean_norm", lambda b, x, dims: b.node("Sqrt", b.reduce("ReduceSum", _square(b, x), dims)))
_add("math.reduce_any", _truth("ReduceMax"))
_add("math.reduce_all", _truth("ReduceMin"))


@EMITTERS.row("math.l2_normalize")
def l2_normalize(b: Builder, x: Operand, axis: Any, epsilon: float) -> Wire:
    squares = b.reduce("ReduceSum", _square(b, x), _dims(x, axis))
    return b.node("Mul", x, b.node("Reciprocal", b.node("Sqrt", b.clip(squares, epsilon, None))))


@EMITTERS.row("math.reduced_shape_elem_cnt")
def reduced_shape_elem_cnt(b: Builder, x: Operand, axis: Any, dtype: torch.dtype | None) -> Wire:
    return b.constant(torch.tensor([math.prod(x.sizes(_dims(x, axis)))], dtype=dtype or x.dtype))


def _arg_max(b: Builder, x: Operand, dim: int) -> Wire:
    """Places of the largest elements, the first of equals; the dim stays, with size 1. ONNX Runtime's ArgMax takes no
    int64."""
    if not x.dtype.is_floating_point:
        return ordered(b, x, dim, 1, descending=True)[1]
    return b.node("ArgMax", x, dtype=torch.int64, axis=dim, keepdims=1)


@EMITTERS.row("math.argmax")
def argmax(b: Builder, x: Operand, axis: int) -> Wire:
    return b.reshape_like(b.cast(_arg_max(b, x, axis_of(axis, x.rank)), torch.int32), b.result)


@EMITTERS.row("math.top_k")
def top_k(b: Builder, x: Operand, k: int, axis: int) -> Wire:
    dim = axis_of(axis, x.rank)
    return b.cast(ordered(b, x, dim, min(k, x.shape[dim]), descending=True)[1], torch.int32)


@EMITTERS.row("math.in_top_k")
def in_top_k(b: Builder, targets: Operand, predictions: Operand, k: int) -> Wire:
    classes = predictions.size(1)
    places = b.cast(targets, torch.int64)
    is_class = b.node("And", b.compare("Greater", places, -1), b.compare("Less", places, classes))
    safe = b.where(is_class, places, 0)
    chosen = b.node("GatherElements", predictions, b.unsqueeze(safe, 1), dtype=predictions.dtype, axis=1)
    larger = b.cast(b.compare("Greater", predictions, chosen), torch.int32)
    is_in = b.compare("Less", b.reduce("ReduceSum", larger, [1], keepdims=False), k)
    # x - x is 0 for a finite number and not a number for any other.
    finite = b.cast(b.compare("Equal", b.node("Sub", predictions, predictions), 0), torch.int32)
    is_finite = b.truth(b.reduce("ReduceMin", finite, [1], keepdims=False))
    return b.cast(b.node("And", b.node("And", is_class, is_finite), is_in), torch.int8)
