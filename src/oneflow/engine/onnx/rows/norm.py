"""Emitters of ``oneflow.engine.ops.norm``."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from oneflow.engine.onnx.builder import Builder, Operand, Wire
from oneflow.engine.onnx.family import Emitters
from oneflow.engine.ops.array import axes_of, axis_of

EMITTERS = Emitters()

EMITTERS.cannot(
    "layers.batch_norm_train", "only a train job records it; in a predict job the moving statistics normalise"
)


@EMITTERS.row("layers.batch_norm_infer")
def batch_norm_infer(
    b: Builder,
    x: Operand,
    mean: Operand,
    variance: Operand,
    gamma: Operand | None,
    beta: Operand | None,
    *,
    axis: int,
    epsilon: float,
) -> Wire:
    dim = axis_of(axis, x.rank)
    scale = gamma or b.constant(torch.ones(mean.shape, dtype=mean.dtype))
    offset = beta or b.constant(torch.zeros(mean.shape, dtype=mean.dtype))
    parameters: list[Wire] = [scale, offset, mean, variance]
    if b.opset < 15:  # all inputs had one dtype then
        parameters = [b.cast(p, x.dtype) for p in parameters]
    order = [0, dim, *(d for d in range(1, x.rank) if d != dim)]
    y = b.node("BatchNormalization", b.transpose(x, order), *parameters, epsilon=epsilon)
    return b.transpose(y, [order.index(d) for d in range(x.rank)])


@EMITTERS.row("nn.batch_normalization")
def batch_normalization(
    b: Builder,
    x: Operand,
    mean: Operand,
    variance: Operand,
    offset: Operand | None,
    scale: Operand | None,
    *,
    axis: int,
    epsilon: float,
) -> Wire:
    shape = [-1] + [1] * (x.rank - 1 - axis_of(axis, x.rank))
    factor = b.node("Reciprocal", b.node("Sqrt", b.node("Add", variance, epsilon)))
    factor = factor if scale is None else b.node("Mul", factor, scale)
    y = b.node("Mul", b.node("Sub", x, b.reshape(mean, shape)), b.reshape(factor, shape))
    return y if offset is None else b.node("Add", y, b.reshape(offset, shape))


@EMITTERS.row("nn.layer_norm")
def layer_norm(
    b: Builder, x: Operand, gamma: Operand | None, beta: Operand | None, *, norm_dims: int, epsilon: float
) -> Wire:
    y = _standard(b, x, range(x.rank - norm_dims, x.rank), epsilon)
    y = y if gamma is None else b.node("Mul", y, b.cast(gamma, x.dtype))
    return y if beta is None else b.node("Add", y, b.cast(beta, x.dtype))


def _standard(b: Builder, x: Wire, dims: Sequence[int], epsilon: float) -> Wire:
    """(x - mean) / sqrt(variance + epsilon) over these dims. Runtimes fuse this pattern into one kernel."""
    mean, variance = _moments(b, x, dims)
    return b.node("Div", b.node("Sub", x, mean), b.node("Sqrt", b.node("Add", variance, epsilon)))


def _moments(b: Builder, x: Wire, dims: Sequence[int]) -> tuple[Wire, Wire]:
    """Mean and biased variance; the dims stay, with size 1."""
    mean = b.reduce("ReduceMean", x, dims)
    centred = b.node("Sub", x, mean)
    return mean, b.reduce("ReduceMean", b.node("Mul", centred, centred), dims)


@EMITTERS.row("nn.group_norm")
def group_norm(
    b: Builder, x: Operand, gamma: Operand | None, beta: Operand | None, *, groups: int, epsilon: float
) -> Wire:
    y = b.reshape_like(_standard(b, b.reshape(x, [*_batch(x), groups, -1]), [2], epsilon), b.result)
    shape = [-1] + [1] * (x.rank - 2)
    y = y if gamma is None else b.node("Mul", y, b.reshape(b.cast(gamma, x.dtype), shape))
    return y if beta is None else b.node("Add", y, b.reshape(b.cast(beta, x.dtype), shape))


def _batch(x: Operand) -> list[int]:
    """The first dim for Reshape: 0 copies it, so that the -1 of another dim stays free."""
    return [0] if 0 in x.batch_dims else [x.shape[0]]


@EMITTERS.row("nn.moments")
def moments(b: Builder, x: Operand, *, dims: Sequence[int], keepdims: bool) -> list[Wire]:
    found = _moments(b, x, axes_of(list(dims) or range(x.rank), x.rank))
    return [b.reshape_like(value, result) for value, result in zip(found, b.results)]
