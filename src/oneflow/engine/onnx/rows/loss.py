"""Emitters of ``oneflow.engine.ops.loss``."""

from __future__ import annotations

import math

from oneflow.engine.onnx.builder import Builder, Operand, Wire
from oneflow.engine.onnx.family import Emitters
from oneflow.engine.onnx.rows.activation import over_dim
from oneflow.engine.onnx.rows.index import places
from oneflow.engine.ops.loss import LARGEST_LOSS, SMALLEST_PROBABILITY

EMITTERS = Emitters()


def _of_class(b: Builder, scores: Wire, labels: Operand, rank: int) -> Wire:
    """The score of each sample's class, in the shape of the result."""
    wanted = places(b, labels)
    if labels.rank < rank:
        wanted = b.unsqueeze(wanted, labels.rank)
    return b.reshape_like(b.node("GatherElements", scores, wanted, axis=rank - 1), b.result)


@EMITTERS.row("nn.sparse_softmax_cross_entropy_with_logits")
def sparse_softmax_cross_entropy_with_logits(
    b: Builder, labels: Operand, logits: Operand, *, stops_at_cap: bool = False
) -> Wire:
    """``stops_at_cap`` is about the gradient."""
    chosen = _of_class(b, over_dim(b, "LogSoftmax", logits, logits.rank - 1), labels, logits.rank)
    return b.clip(b.node("Neg", chosen), None, LARGEST_LOSS)


@EMITTERS.row("nn.sparse_cross_entropy")
def sparse_cross_entropy(b: Builder, labels: Operand, prediction: Operand) -> Wire:
    chosen = _of_class(b, prediction, labels, prediction.rank)
    return b.node("Neg", b.node("Log", b.clip(chosen, SMALLEST_PROBABILITY, None)))


@EMITTERS.row("nn.softmax_cross_entropy_with_logits")
def softmax_cross_entropy_with_logits(b: Builder, labels: Operand, logits: Operand) -> Wire:
    last = logits.rank - 1
    log_p = b.clip(over_dim(b, "LogSoftmax", logits, last), -LARGEST_LOSS, None)
    return b.node("Neg", b.reduce("ReduceSum", b.node("Mul", labels, log_p), [last], keepdims=False))


def _log_sigmoid(b: Builder, x: Wire) -> Wire:
    return b.node("Neg", b.node("Softplus", b.node("Neg", x)))


def _binary(b: Builder, x: Wire, target: Wire, pos_weight: Wire | None = None) -> Wire:
    """-pos_weight · target · log(sigmoid(x)) - (1 - target) · log(sigmoid(-x))."""
    hit = b.node("Mul", target, _log_sigmoid(b, x))
    hit = hit if pos_weight is None else b.node("Mul", hit, pos_weight)
    miss = b.node("Mul", b.node("Sub", b.wire(1, x.dtype), target), b.node("Softplus", x))
    return b.node("Sub", miss, hit)


@EMITTERS.row("nn.sigmoid_cross_entropy_with_logits")
def sigmoid_cross_entropy_with_logits(b: Builder, labels: Operand, logits: Operand) -> Wire:
    return _binary(b, logits, b.cast(labels, logits.dtype))


@EMITTERS.row("smooth_l1_loss")
def smooth_l1_loss(b: Builder, prediction: Operand, label: Operand, *, beta: float) -> Wire:
    distance = b.node("Abs", b.node("Sub", prediction, label))
    if beta == 0:
        return distance
    near = b.node("Mul", b.node("Mul", distance, distance), 0.5 / beta)
    return b.where(b.compare("Less", distance, beta), near, b.node("Sub", distance, 0.5 * beta))


def _reduced(b: Builder, loss: Wire, reduction: str, rank: int) -> Wire:
    if reduction == "none":
        return loss
    kind = "ReduceMean" if reduction == "mean" else "ReduceSum"
    return b.reshape(b.reduce(kind, loss, range(rank), keepdims=False), [1])


def _weighted(b: Builder, loss: Wire, weight: Operand | None) -> Wire:
    return loss if weight is None else b.node("Mul", loss, weight)


@EMITTERS.row("nn.l1_loss")
def l1_loss(b: Builder, x: Operand, target: Operand, *, reduction: str) -> Wire:
    return _reduced(b, b.node("Abs", b.node("Sub", x, target)), reduction, x.rank)


@EMITTERS.row("nn.mse_loss")
def mse_loss(b: Builder, x: Operand, target: Operand, *, reduction: str) -> Wire:
    difference = b.node("Sub", x, target)
    return _reduced(b, b.node("Mul", difference, difference), reduction, x.rank)


@EMITTERS.row("nn.bce_loss")
def bce_loss(b: Builder, x: Operand, target: Operand, weight: Operand | None, *, reduction: str) -> Wire:
    one = b.wire(1, x.dtype)
    hit = b.node("Mul", target, _bounded_log(b, x))
    miss = b.node("Mul", b.node("Sub", one, target), _bounded_log(b, b.node("Sub", one, x)))
    return _reduced(b, _weighted(b, b.node("Neg", b.node("Add", hit, miss)), weight), reduction, x.rank)


def _bounded_log(b: Builder, x: Wire) -> Wire:
    """Logarithms are not taken below -100."""
    return b.clip(b.node("Log", x), -100, None)


@EMITTERS.row("nn.bce_with_logits_loss")
def bce_with_logits_loss(
    b: Builder, x: Operand, target: Operand, weight: Operand | None, pos_weight: Operand | None, *, reduction: str
) -> Wire:
    loss = _binary(b, x, target, pos_weight)
    return _reduced(b, _weighted(b, loss, weight), reduction, x.rank)


@EMITTERS.row("nn.kl_div_loss")
def kl_div_loss(b: Builder, x: Operand, target: Operand, *, log_target: bool, reduction: str) -> Wire:
    if log_target:
        loss = b.node("Mul", b.node("Exp", target), b.node("Sub", target, x))
    else:
        zero = b.compare("Equal", target, 0)
        entropy = b.where(zero, 0, b.node("Mul", target, b.node("Log", b.where(zero, 1, target))))
        loss = b.node("Sub", entropy, b.node("Mul", target, x))
    return _reduced(b, loss, reduction, x.rank)


@EMITTERS.row("nn.margin_ranking_loss")
def margin_ranking_loss(
    b: Builder, x1: Operand, x2: Operand, target: Operand, *, margin: float, reduction: str
) -> Wire:
    signed = b.node("Mul", target, b.node("Sub", x1, x2))
    loss = b.node("Relu", b.node("Sub", b.wire(margin, x1.dtype), signed))
    return _reduced(b, loss, reduction, x1.rank)


@EMITTERS.row("nn.triplet_margin_loss")
def triplet_margin_loss(
    b: Builder,
    anchor: Operand,
    positive: Operand,
    negative: Operand,
    *,
    margin: float,
    p: float,
    epsilon: float,
    swap: bool,
    reduction: str,
) -> Wire:
    last = anchor.rank - 1
    near, far = (_distance(b, anchor, other, last, p, epsilon) for other in (positive, negative))
    if swap:
        far = b.node("Min", far, _distance(b, positive, negative, last, p, epsilon))
    loss = b.node("Relu", b.node("Add", b.node("Sub", near, far), margin))
    return _reduced(b, loss, reduction, last)


def _distance(b: Builder, x: Operand, y: Operand, dim: int, p: float, epsilon: float) -> Wire:
    """The p-norm of x - y + epsilon over one dim."""
    difference = b.node("Abs", b.node("Add", b.node("Sub", x, y), epsilon))
    if math.isinf(p):
        return b.reduce("ReduceMax", difference, [dim], keepdims=False)
    if p == 0:
        nonzero = b.cast(b.negate(b.compare("Equal", difference, 0)), x.dtype)
        return b.reduce("ReduceSum", nonzero, [dim], keepdims=False)
    total = b.reduce("ReduceSum", b.node("Pow", difference, p), [dim], keepdims=False)
    return b.node("Pow", total, 1 / p)


EMITTERS.cannot("combined_margin_loss", "it is a loss of training; export the cosines that it is given")
