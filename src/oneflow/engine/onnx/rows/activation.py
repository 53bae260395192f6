"""Emitters of ``oneflow.engine.ops.activation``."""

from __future__ import annotations

from oneflow.engine.onnx.builder import Builder, Operand, Wire
from oneflow.engine.onnx.family import Emitters
from oneflow.engine.ops.array import axis_of

EMITTERS = Emitters()


@EMITTERS.row("nn.relu6")
def relu6(b: Builder, x: Operand) -> Wire:
    return b.clip(x, 0, 6)


@EMITTERS.row("nn.hardsigmoid")
def hardsigmoid(b: Builder, x: Operand) -> Wire:
    return b.node("HardSigmoid", x, alpha=1 / 6, beta=0.5)


@EMITTERS.row("nn.hardswish")
def hardswish(b: Builder, x: Operand) -> Wire:
    return b.node("Mul", x, hardsigmoid(b, x))


@EMITTERS.row("nn.mish")
def mish(b: Builder, x: Operand) -> Wire:
    return b.node("Mul", x, b.node("Tanh", b.node("Softplus", x)))


@EMITTERS.row("nn.leaky_relu")
def leaky_relu(b: Builder, x: Operand, *, alpha: float) -> Wire:
    return b.node("LeakyRelu", x, alpha=float(alpha))


@EMITTERS.row("nn.elu")
def elu(b: Builder, x: Operand, *, alpha: float) -> Wire:
    return b.node("Elu", x, alpha=float(alpha))


@EMITTERS.row("nn.hardtanh")
def hardtanh(b: Builder, x: Operand, *, low: float, high: float) -> Wire:
    return b.clip(x, low, high)


@EMITTERS.row("nn.swish")
def swish(b: Builder, x: Operand, *, beta: float) -> Wire:
    scaled = x if beta == 1 else b.node("Mul", x, beta)
    return b.node("Mul", x, b.node("Sigmoid", scaled))


@EMITTERS.row("nn.prelu")
def prelu(b: Builder, x: Operand, alpha: Operand) -> Wire:
    return b.node("PRelu", x, alpha)


def _softmax(name: str, kind: str) -> None:
    EMITTERS.add(name, lambda b, x, *, dim: over_dim(b, kind, x, axis_of(dim, x.rank)))


def over_dim(b: Builder, kind: str, x: Operand, dim: int) -> Wire:
    """Softmax or LogSoftmax over one dim. Before opset 13 they take all dims from ``axis`` on as one, so it must be the
    last."""
    if b.opset >= 13 or dim == x.rank - 1:
        return b.node(kind, x, axis=dim)
    perm = list(range(x.rank))
    perm[dim], perm[-1] = perm[-1], perm[dim]
    return b.transpose(b.node(kind, b.transpose(x, perm), axis=x.rank - 1), perm)


_softmax("nn.softmax", "Softmax")
_softmax("nn.logsoftmax", "LogSoftmax")
