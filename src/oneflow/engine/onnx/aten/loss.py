"""Emitters of aten's losses."""

from __future__ import annotations

import torch

from oneflow.engine.onnx.aten.activation import log_sigmoid
from oneflow.engine.onnx.aten.builder import AtenBuilder
from oneflow.engine.onnx.aten.family import AtenEmitters
from oneflow.engine.onnx.builder import Operand, Wire

EMITTERS = AtenEmitters()

_NONE, _MEAN = 0, 1


def _reduced(b: AtenBuilder, loss: Wire, rank: int, reduction: int) -> Wire:
    """Whole, its mean or its sum."""
    if reduction == _NONE or rank == 0:
        return loss
    return b.reduce("ReduceMean" if reduction == _MEAN else "ReduceSum", loss, range(rank), keepdims=False)


@EMITTERS.row("mse_loss.default")
def mse_loss(b: AtenBuilder, x: Operand, target: Operand, reduction: int = _MEAN) -> Wire:
    apart = b.node("Sub", x, target)
    return _reduced(b, b.node("Mul", apart, apart), x.rank, reduction)


def _huber(b: AtenBuilder, x: Operand, target: Operand, delta: float) -> Wire:
    """Half the square below delta, delta * (size - delta / 2) above."""
    size = b.node("Abs", b.node("Sub", x, target))
    line = b.node("Mul", b.node("Sub", size, delta / 2), delta)
    return b.where(b.compare("Less", size, delta), b.node("Mul", b.node("Mul", size, size), 0.5), line)


@EMITTERS.row("huber_loss.default")
def huber_loss(b: AtenBuilder, x: Operand, target: Operand, reduction: int = _MEAN, delta: float = 1.0) -> Wire:
    return _reduced(b, _huber(b, x, target, delta), x.rank, reduction)


@EMITTERS.row("smooth_l1_loss.default")
def smooth_l1_loss(b: AtenBuilder, x: Operand, target: Operand, reduction: int = _MEAN, beta: float = 1.0) -> Wire:
    if beta == 0:
        loss = b.node("Abs", b.node("Sub", x, target))
    else:
        loss = b.node("Div", _huber(b, x, target, beta), beta)
    return _reduced(b, loss, x.rank, reduction)


@EMITTERS.row("soft_margin_loss.default")
def soft_margin_loss(b: AtenBuilder, x: Operand, target: Operand, reduction: int = _MEAN) -> Wire:
    return _reduced(b, b.node("Softplus", b.node("Neg", b.node("Mul", x, target))), x.rank, reduction)


@EMITTERS.row("binary_cross_entropy.default")
def binary_cross_entropy(
    b: AtenBuilder, x: Operand, target: Operand, weight: Operand | None = None, reduction: int = _MEAN
) -> Wire:
    """Logarithms are held above -100, as torch holds them."""
    opposite = b.node("Sub", b.wire(1, x.dtype), x)
    yes, no = (b.node("Max", b.node("Log", p), b.wire(-100, x.dtype)) for p in (x, opposite))
    loss = b.node(
        "Neg", b.node("Add", b.node("Mul", target, yes), b.node("Mul", b.node("Sub", b.wire(1, x.dtype), target), no))
    )
    return _reduced(b, loss if weight is None else b.node("Mul", loss, weight), x.rank, reduction)


@EMITTERS.row("binary_cross_entropy_with_logits.default")
def binary_cross_entropy_with_logits(
    b: AtenBuilder,
    x: Operand,
    target: Operand,
    weight: Operand | None = None,
    pos_weight: Operand | None = None,
    reduction: int = _MEAN,
) -> Wire:
    yes, no = log_sigmoid(b, x), b.node("Neg", b.node("Softplus", x))
    yes = yes if pos_weight is None else b.node("Mul", yes, pos_weight)
    loss = b.node(
        "Neg", b.node("Add", b.node("Mul", target, yes), b.node("Mul", b.node("Sub", b.wire(1, x.dtype), target), no))
    )
    return _reduced(b, loss if weight is None else b.node("Mul", loss, weight), x.rank, reduction)


@EMITTERS.row("nll_loss_forward.default", "nll_loss2d_forward.default")
def nll_loss(
    b: AtenBuilder, x: Operand, target: Operand, weight: Operand | None, reduction: int, ignore_index: int
) -> list[Wire]:
    """The classes stand at dim 1, or at dim 0 of a single sample."""
    dim = 0 if x.rank == 1 else 1
    counted = b.negate(b.compare("Equal", b.cast(target, torch.int64), ignore_index))
    classes = b.where(counted, b.cast(target, torch.int64), 0)
    chosen = b.squeeze(b.node("GatherElements", x, b.unsqueeze(classes, dim), axis=dim), dim)
    factor = b.cast(counted, x.dtype)
    factor = factor if weight is None else b.node("Mul", b.node("Gather", weight, classes, axis=0), factor)
    loss = b.node("Mul", b.node("Neg", chosen), factor)
    if reduction == _NONE:
        return [b.where(counted, loss, 0), b.wire(0, x.dtype)]
    total = _reduced(b, factor, target.rank, 2)
    whole = _reduced(b, b.where(counted, loss, 0), target.rank, 2)
    return [b.node("Div", whole, total) if reduction == _MEAN else whole, total]
