"""Emitters of ``oneflow.engine.ops.unary``."""

from __future__ import annotations

import math

import torch

from oneflow.engine.onnx.builder import Builder, Operand, Wire
from oneflow.engine.onnx.family import Emitters

EMITTERS = Emitters()

for _name, _kind in {
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "acos": "Acos",
    "acosh": "Acosh",
    "asin": "Asin",
    "asinh": "Asinh",
    "atan": "Atan",
    "atanh": "Atanh",
    "cos": "Cos",
    "cosh": "Cosh",
    "sin": "Sin",
    "sinh": "Sinh",
    "tan": "Tan",
    "exp": "Exp",
    "log": "Log",
    "softplus": "Softplus",
    "erf": "Erf",
    "sqrt": "Sqrt",
    "reciprocal": "Reciprocal",
    "ceil": "Ceil",
    "floor": "Floor",
    "round": "Round",
    "rint": "Round",
}.items():
    EMITTERS.plain(f"math.{_name}", _kind)

for _name, _kind in {"abs": "Abs", "negative": "Neg", "sign": "Sign"}.items():
    EMITTERS.add(f"math.{_name}", lambda b, x, kind=_kind: b.arithmetic(kind, x))

EMITTERS.cannot("math.lgamma", "ONNX has no gamma function")


@EMITTERS.row("math.relu")
def relu(b: Builder, x: Operand) -> Wire:
    return b.node("Relu", x) if x.dtype.is_floating_point else b.arithmetic("Max", x, 0)


@EMITTERS.row("math.gelu")
def gelu(b: Builder, x: Operand) -> Wire:
    """x · (1 + erf(x / √2)) / 2: the operator Gelu is younger than most runtimes."""
    part = b.node("Add", b.node("Erf", b.node("Mul", x, math.sqrt(0.5))), 1)
    return b.node("Mul", b.node("Mul", x, 0.5), part)


@EMITTERS.row("math.square")
def square(b: Builder, x: Operand) -> Wire:
    return b.arithmetic("Mul", x, x)


@EMITTERS.row("math.logical_not")
def logical_not(b: Builder, x: Operand) -> Wire:
    return b.cast(b.negate(b.truth(x)), torch.int8)


@EMITTERS.row("math.expm1")
def expm1(b: Builder, x: Wire) -> Wire:
    """tanh(x / 2) · (exp(x) + 1), which keeps the digits of a small x that exp(x) - 1 loses."""
    return b.node("Mul", b.node("Tanh", b.node("Mul", x, 0.5)), b.node("Add", b.node("Exp", x), 1))


@EMITTERS.row("math.log1p")
def log1p(b: Builder, x: Wire) -> Wire:
    """2 · atanh(x / (2 + x)) for a small x, whose digits log(1 + x) loses."""
    is_small = b.compare("Less", b.node("Abs", x), 0.5)
    small = b.where(is_small, x, 0)
    series = b.node("Mul", b.node("Atanh", b.node("Div", small, b.node("Add", small, 2))), 2)
    return b.where(is_small, series, b.node("Log", b.node("Add", x, 1)))


@EMITTERS.row("math.log_sigmoid")
def log_sigmoid(b: Builder, x: Operand) -> Wire:
    return b.node("Neg", b.node("Softplus", b.node("Neg", x)))


@EMITTERS.row("math.erfc")
def erfc(b: Builder, x: Wire) -> Wire:
    return b.node("Sub", b.wire(1, x.dtype), b.node("Erf", x))


@EMITTERS.row("math.rsqrt")
def rsqrt(b: Builder, x: Wire) -> Wire:
    return b.node("Reciprocal", b.node("Sqrt", x))


@EMITTERS.row("math.reciprocal_no_nan")
def reciprocal_no_nan(b: Builder, x: Operand) -> Wire:
    zero = b.compare("Equal", x, 0)
    return b.where(zero, 0, b.node("Reciprocal", b.where(zero, 1, x)))


@EMITTERS.row("math.clip_by_value")
def clip_by_value(b: Builder, x: Operand, low: float | None, high: float | None) -> Wire:
    return b.clip(x, low, high)
