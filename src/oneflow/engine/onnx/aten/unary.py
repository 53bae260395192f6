"""Emitters of aten ops on each element of one tensor."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from oneflow.engine.onnx.aten.builder import AtenBuilder
from oneflow.engine.onnx.aten.family import AtenEmitters
from oneflow.engine.onnx.builder import Builder, Operand, Wire

EMITTERS = AtenEmitters()

_REAL = {
    "acos": "Acos",
    "acosh": "Acosh",
    "asin": "Asin",
    "asinh": "Asinh",
    "atan": "Atan",
    "atanh": "Atanh",
    "cos": "Cos",
    "cosh": "Cosh",
    "erf": "Erf",
    "exp": "Exp",
    "log": "Log",
    "reciprocal": "Reciprocal",
    "sigmoid": "Sigmoid",
    "sin": "Sin",
    "sinh": "Sinh",
    "sqrt": "Sqrt",
    "tan": "Tan",
    "tanh": "Tanh",
}


def _real(name: str, formula: Callable[[Builder, Wire], Wire]) -> None:
    """A function of real numbers: integers become floats first."""
    EMITTERS.add(f"{name}.default", lambda b, x: formula(b, b.cast(x, b.result.dtype)))


def _one_node(kind: str) -> Callable[[Builder, Wire], Wire]:
    return lambda b, x: b.node(kind, x)


for _name, _kind in _REAL.items():
    _real(_name, _one_node(_kind))


def _scaled_log(base: float) -> Callable[[Builder, Wire], Wire]:
    return lambda b, x: b.node("Mul", b.node("Log", x), 1 / math.log(base))


def expm1(b: Builder, x: Wire) -> Wire:
    """tanh(x / 2) * (exp(x) + 1), which keeps the digits of a small x that exp(x) - 1 loses."""
    return b.node("Mul", b.node("Tanh", b.node("Mul", x, 0.5)), b.node("Add", b.node("Exp", x), 1))


def log1p(b: Builder, x: Wire) -> Wire:
    """2 * atanh(x / (2 + x)) for a small x, whose digits log(1 + x) loses."""
    is_small = b.compare("Less", b.node("Abs", x), 0.5)
    small = b.where(is_small, x, 0)
    series = b.node("Mul", b.node("Atanh", b.node("Div", small, b.node("Add", small, 2))), 2)
    return b.where(is_small, series, b.node("Log", b.node("Add", x, 1)))


_real("log2", _scaled_log(2))
_real("log10", _scaled_log(10))
_real("exp2", lambda b, x: b.node("Pow", b.wire(2, x.dtype), x))
_real("expm1", expm1)
_real("log1p", log1p)
_real("erfc", lambda b, x: b.node("Sub", b.wire(1, x.dtype), b.node("Erf", x)))
_real("rsqrt", lambda b, x: b.node("Reciprocal", b.node("Sqrt", x)))
_real("deg2rad", lambda b, x: b.node("Mul", x, math.pi / 180))
_real("rad2deg", lambda b, x: b.node("Mul", x, 180 / math.pi))

EMITTERS.cannot(
    "ONNX has no gamma, Bessel or inverse error function; compute it outside of the model",
    *(
        "lgamma.default",
        "digamma.default",
        "polygamma.default",
        "erfinv.default",
        "i0.default",
        "special_i0e.default",
        "special_i1.default",
    ),
)
EMITTERS.cannot(
    "ONNX has no complex numbers; compute with real and imaginary parts",
    *(
        "view_as_complex.default",
        "view_as_real.default",
        "_fft_r2c.default",
        "_fft_c2r.default",
        "_fft_c2c.default",
        "complex.default",
    ),
)

for _name, _kind in {"abs": "Abs", "neg": "Neg", "sign": "Sign", "sgn": "Sign"}.items():
    EMITTERS.add(f"{_name}.default", lambda b, x, kind=_kind: b.arithmetic(kind, x))

for _name, _kind in {"ceil": "Ceil", "floor": "Floor", "round": "Round"}.items():
    EMITTERS.add(f"{_name}.default", lambda b, x, kind=_kind: b.node(kind, x) if x.dtype.is_floating_point else x)


@EMITTERS.row("round.decimals")
def round_decimals(b: AtenBuilder, x: Operand, *, decimals: int) -> Wire:
    return b.node("Div", b.node("Round", b.node("Mul", x, 10.0**decimals)), 10.0**decimals)


@EMITTERS.row("trunc.default", "fix.default")
def trunc(b: Builder, x: Wire) -> Wire:
    if not x.dtype.is_floating_point:
        return x
    return b.where(b.compare("Less", x, 0), b.node("Ceil", x), b.node("Floor", x))


@EMITTERS.row("frac.default")
def frac(b: AtenBuilder, x: Operand) -> Wire:
    return b.node("Sub", x, trunc(b, x))


@EMITTERS.row("relu.default")
def relu(b: AtenBuilder, x: Operand) -> Wire:
    return b.node("Relu", x) if x.dtype.is_floating_point else b.maximum(x, 0)


@EMITTERS.row("bitwise_not.default")
def bitwise_not(b: AtenBuilder, x: Operand) -> Wire:
    """-x - 1 for integers."""
    return b.negate(x) if x.dtype == torch.bool else b.arithmetic("Sub", b.arithmetic("Neg", x), 1)


@EMITTERS.row("logical_not.default")
def logical_not(b: AtenBuilder, x: Operand) -> Wire:
    return b.negate(b.truth(x))


def is_nan(b: Builder, x: Wire) -> Wire:
    return b.node("IsNaN", x, dtype=torch.bool)


@EMITTERS.row("isnan.default")
def isnan(b: AtenBuilder, x: Operand) -> Wire:
    return is_nan(b, x) if x.dtype.is_floating_point else b.filled(False, torch.bool, b.sizes_of(x))


@EMITTERS.row("isinf.default")
def isinf(b: AtenBuilder, x: Operand) -> Wire:
    """ONNX Runtime looks for infinities in float32 and float64 only."""
    if not x.dtype.is_floating_point:
        return b.filled(False, torch.bool, b.sizes_of(x))
    wide = x if x.dtype == torch.float64 else b.cast(x, torch.float32)
    return b.node("IsInf", wide, dtype=torch.bool)


def is_negative(b: Builder, x: Wire) -> Wire:
    """Whether the sign of x is minus, also that of -0."""
    below = b.compare("Less", x, 0)
    return (
        below if not x.dtype.is_floating_point else b.node("Or", below, b.compare("Less", b.node("Reciprocal", x), 0))
    )


@EMITTERS.row("signbit.default")
def signbit(b: AtenBuilder, x: Operand) -> Wire:
    return is_negative(b, x)


@EMITTERS.row("sinc.default")
def sinc(b: AtenBuilder, x: Operand) -> Wire:
    turned = b.node("Mul", b.cast(x, b.result.dtype), math.pi)
    zero = b.compare("Equal", turned, 0)
    return b.where(zero, 1, b.node("Div", b.node("Sin", turned), b.where(zero, 1, turned)))


@EMITTERS.row("logit.default")
def logit(b: AtenBuilder, x: Operand, eps: float | None = None) -> Wire:
    part = x if eps is None else b.clip(x, eps, 1 - eps)
    return b.node("Log", b.node("Div", part, b.node("Sub", b.wire(1, x.dtype), part)))


@EMITTERS.row("nan_to_num.default")
def nan_to_num(
    b: AtenBuilder, x: Operand, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Wire:
    if not x.dtype.is_floating_point:
        return x
    limits = torch.finfo(x.dtype)
    high, low = (limits.max if posinf is None else posinf), (limits.min if neginf is None else neginf)
    whole = b.where(is_nan(b, x), nan or 0.0, x)
    whole = b.where(b.compare("Equal", whole, math.inf), high, whole)
    return b.where(b.compare("Equal", whole, -math.inf), low, whole)
