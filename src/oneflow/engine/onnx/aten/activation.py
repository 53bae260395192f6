"""Emitters of aten's activations."""

from __future__ import annotations

import math
from typing import Any

from oneflow.engine.core.errors import UnsupportedError
from oneflow.engine.onnx.aten.builder import AtenBuilder
from oneflow.engine.onnx.aten.family import AtenEmitters, place
from oneflow.engine.onnx.aten.unary import expm1
from oneflow.engine.onnx.builder import Builder, Operand, Wire

EMITTERS = AtenEmitters()


@EMITTERS.row("hardsigmoid.default")
def hardsigmoid(b: AtenBuilder, x: Operand) -> Wire:
    return b.node("HardSigmoid", x, alpha=1 / 6, beta=0.5)


@EMITTERS.row("hardswish.default")
def hardswish(b: AtenBuilder, x: Operand) -> Wire:
    return b.node("Mul", x, hardsigmoid(b, x))


@EMITTERS.row("mish.default")
def mish(b: AtenBuilder, x: Operand) -> Wire:
    return b.node("Mul", x, b.node("Tanh", b.node("Softplus", x)))


@EMITTERS.row("silu.default")
def silu(b: AtenBuilder, x: Operand) -> Wire:
    return b.node("Mul", x, b.node("Sigmoid", x))


@EMITTERS.row("gelu.default")
def gelu(b: AtenBuilder, x: Operand, *, approximate: str = "none") -> Wire:
    """Spelled out: the operator Gelu is younger than most runtimes."""
    half = b.node("Mul", x, 0.5)
    if approximate == "none":
        return b.node("Mul", half, b.node("Add", b.node("Erf", b.node("Mul", x, math.sqrt(0.5))), 1))
    cube = b.node("Mul", b.node("Mul", b.node("Mul", x, x), x), 0.044715)
    inner = b.node("Tanh", b.node("Mul", b.node("Add", x, cube), math.sqrt(2 / math.pi)))
    return b.node("Mul", half, b.node("Add", inner, 1))


@EMITTERS.row("elu.default")
def elu(b: AtenBuilder, x: Operand, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Wire:
    """scale * x above 0, scale * alpha * (exp(input_scale * x) - 1) below."""
    if input_scale == 1:
        made = b.node("Elu", x, alpha=float(alpha))
    else:
        below = b.node("Mul", expm1(b, b.node("Mul", b.clip(x, -math.inf, 0), input_scale)), alpha)
        made = b.where(b.compare("Greater", x, 0), x, below)
    return made if scale == 1 else b.node("Mul", made, scale)


@EMITTERS.row("celu.default")
def celu(b: AtenBuilder, x: Operand, alpha: float = 1) -> Wire:
    return elu(b, x, alpha, 1, 1 / alpha)


@EMITTERS.row("hardtanh.default")
def hardtanh(b: AtenBuilder, x: Operand, min_val: float = -1, max_val: float = 1) -> Wire:
    return b.clip(x, min_val, max_val)


@EMITTERS.row("leaky_relu.default")
def leaky_relu(b: AtenBuilder, x: Operand, negative_slope: float = 0.01) -> Wire:
    return b.node("LeakyRelu", x, alpha=float(negative_slope))


@EMITTERS.row("rrelu_with_noise_functional.default")
def rrelu(
    b: AtenBuilder,
    x: Operand,
    noise: Operand,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    *_: Any,
) -> list[Wire]:
    """In evaluation the slope is the mean of its limits."""
    if training:
        raise UnsupportedError("its slopes are drawn while it trains; call .eval() on the module")
    return [b.node("LeakyRelu", x, alpha=(lower + upper) / 2), noise]


def log_sigmoid(b: Builder, x: Wire) -> Wire:
    return b.node("Neg", b.node("Softplus", b.node("Neg", x)))


@EMITTERS.row("log_sigmoid_forward.default")
def log_sigmoid_forward(b: AtenBuilder, x: Operand) -> list[Wire | None]:
    return [log_sigmoid(b, x), None]


@EMITTERS.row("softplus.default")
def softplus(b: AtenBuilder, x: Operand, beta: float = 1, threshold: float = 20) -> Wire:
    """x itself where beta * x is above the threshold, which Softplus also gives but for rounding."""
    scaled = x if beta == 1 else b.node("Mul", x, beta)
    soft = b.node("Softplus", scaled)
    return b.where(b.compare("Greater", scaled, threshold), x, soft if beta == 1 else b.node("Div", soft, beta))


@EMITTERS.row("softshrink.default")
def softshrink(b: AtenBuilder, x: Operand, lambd: float = 0.5) -> Wire:
    return b.node("Shrink", x, lambd=float(lambd), bias=float(lambd))


@EMITTERS.row("hardshrink.default")
def hardshrink(b: AtenBuilder, x: Operand, lambd: float = 0.5) -> Wire:
    return b.node("Shrink", x, lambd=float(lambd), bias=0.0)


@EMITTERS.row("threshold.default")
def threshold(b: AtenBuilder, x: Operand, threshold: float, value: float) -> Wire:
    return b.where(b.compare("Greater", x, threshold), x, value)


@EMITTERS.row("_prelu_kernel.default")
def prelu(b: AtenBuilder, x: Operand, weight: Operand) -> Wire:
    return b.node("PRelu", x, weight)


@EMITTERS.row("glu.default")
def glu(b: AtenBuilder, x: Operand, dim: int = -1) -> Wire:
    axis = place(dim, x.rank)
    half = x.size(axis) // 2
    first, second = b.split(x, [half, half], axis)
    return b.node("Mul", first, b.node("Sigmoid", second))


@EMITTERS.row("_softmax.default")
def softmax(b: AtenBuilder, x: Operand, dim: int, half_to_float: bool = False) -> Wire:
    return _over_dim(b, "Softmax", x, dim)


@EMITTERS.row("_log_softmax.default")
def log_softmax(b: AtenBuilder, x: Operand, dim: int, half_to_float: bool = False) -> Wire:
    return _over_dim(b, "LogSoftmax", x, dim)


def _over_dim(b: AtenBuilder, kind: str, x: Operand, dim: int) -> Wire:
    """Softmax or LogSoftmax over one dim. Before opset 13 they take all dims from ``axis`` on as one, so the dim is
    moved to the end."""
    wide = b.cast(x, b.result.dtype)
    if x.rank == 0:
        return b.reshape(b.node(kind, b.reshape(wide, [1]), axis=0), [])
    axis = place(dim, x.rank)
    if b.opset >= 13 or axis == x.rank - 1:
        return b.node(kind, wide, axis=axis)
    perm = list(range(x.rank))
    perm[axis], perm[-1] = perm[-1], perm[axis]
    return b.transpose(b.node(kind, b.transpose(wide, perm), axis=x.rank - 1), perm)


@EMITTERS.row("_safe_softmax.default")
def safe_softmax(b: AtenBuilder, x: Operand, dim: int, dtype: object = None) -> Wire:
    """0 where all of a row is minus infinity."""
    none = b.compare("Equal", b.reduce("ReduceMax", b.cast(x, b.result.dtype), [place(dim, x.rank)]), -math.inf)
    return b.where(none, 0, _over_dim(b, "Softmax", x, dim))
