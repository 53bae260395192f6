"""Emitters of aten ops on the elements of several tensors: arithmetic, comparison, logic, choice and limits."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from oneflow.engine.core.errors import UnsupportedError
from oneflow.engine.onnx.aten.builder import AtenBuilder, Number
from oneflow.engine.onnx.aten.family import AtenEmitters
from oneflow.engine.onnx.aten.unary import is_nan, is_negative, log1p, trunc
from oneflow.engine.onnx.builder import Builder, Operand, Wire

EMITTERS = AtenEmitters()

Value = Operand | Number


def _both(b: AtenBuilder, x: Value, y: Value) -> tuple[Wire, Wire]:
    """Both in the dtype of the result."""
    return b.typed(x, b.result.dtype), b.typed(y, b.result.dtype)


def add_wires(b: Builder, x: Wire, y: Wire) -> Wire:
    """Of bools, whether one is true."""
    return b.node("Or", x, y) if x.dtype == torch.bool else b.arithmetic("Add", x, y)


def multiply_wires(b: Builder, x: Wire, y: Wire) -> Wire:
    return b.node("And", x, y) if x.dtype == torch.bool else b.arithmetic("Mul", x, y)


def _times(b: AtenBuilder, x: Wire, alpha: Number) -> Wire:
    return x if alpha == 1 else multiply_wires(b, x, b.wire(alpha, x.dtype))


@EMITTERS.row("add.Tensor", "add.Scalar")
def add(b: AtenBuilder, x: Value, y: Value, alpha: Number = 1) -> Wire:
    left, right = _both(b, x, y)
    return add_wires(b, left, _times(b, right, alpha))


@EMITTERS.row("sub.Tensor", "sub.Scalar")
def sub(b: AtenBuilder, x: Value, y: Value, alpha: Number = 1) -> Wire:
    left, right = _both(b, x, y)
    return b.arithmetic("Sub", left, _times(b, right, alpha))


@EMITTERS.row("rsub.Tensor", "rsub.Scalar")
def rsub(b: AtenBuilder, x: Value, y: Value, alpha: Number = 1) -> Wire:
    return sub(b, y, x, alpha)


@EMITTERS.row("mul.Tensor", "mul.Scalar")
def mul(b: AtenBuilder, x: Value, y: Value) -> Wire:
    return multiply_wires(b, *_both(b, x, y))


def _remainder(b: Builder, x: Wire, y: Wire) -> Wire:
    """With the sign of the divisor. ONNX has it for integers only; for floats it keeps the sign of x."""
    if not x.dtype.is_floating_point:
        return b.arithmetic("Mod", x, y)
    rest = b.node("Mod", x, y, fmod=1)
    return b.where(b.compare("Less", b.node("Mul", rest, y), 0), b.node("Add", rest, y), rest)


def _floor_quotient(b: Builder, x: Wire, y: Wire) -> Wire:
    """(x - x mod y) / y, which is whole but for rounding: the floor of x / y is off where that rounds up to a whole
    number."""
    whole = b.arithmetic("Div", b.arithmetic("Sub", x, _remainder(b, x, y)), y)
    if not x.dtype.is_floating_point:
        return whole
    return b.where(b.compare("Equal", y, 0), b.node("Div", x, y), b.node("Round", whole))


@EMITTERS.row("div.Tensor", "div.Scalar", "div.Tensor_mode", "div.Scalar_mode", "true_divide.Tensor")
def div(b: AtenBuilder, x: Value, y: Value, *, rounding_mode: str | None = None) -> Wire:
    """ONNX truncates the quotient of integers."""
    left, right = _both(b, x, y)
    if rounding_mode == "floor":
        return _floor_quotient(b, left, right)
    quotient = b.arithmetic("Div", left, right)
    return quotient if rounding_mode is None else trunc(b, quotient)


@EMITTERS.row("floor_divide.default", "floor_divide.Scalar")
def floor_divide(b: AtenBuilder, x: Value, y: Value) -> Wire:
    return _floor_quotient(b, *_both(b, x, y))


@EMITTERS.row("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def remainder(b: AtenBuilder, x: Value, y: Value) -> Wire:
    return _remainder(b, *_both(b, x, y))


@EMITTERS.row("fmod.Tensor", "fmod.Scalar")
def fmod(b: AtenBuilder, x: Value, y: Value) -> Wire:
    """The remainder with the sign of x."""
    left, right = _both(b, x, y)
    wide = torch.int32 if left.dtype in (torch.int8, torch.uint8) else left.dtype
    return b.cast(b.node("Mod", b.cast(left, wide), b.cast(right, wide), fmod=1), left.dtype)


@EMITTERS.row("pow.Tensor_Tensor", "pow.Tensor_Scalar", "pow.Scalar")
def power(b: AtenBuilder, x: Value, y: Value) -> Wire:
    """Pow takes integers since opset 12, and a square is a product."""
    left, right = _both(b, x, y)
    if isinstance(y, (int, float)) and y == 2:
        return b.arithmetic("Mul", left, left)
    return b.arithmetic("Pow", left, right)


def larger(b: Builder, x: Wire, y: Wire) -> Wire:
    return b.node("Or", x, y) if x.dtype == torch.bool else b.maximum(x, y)


def smaller(b: Builder, x: Wire, y: Wire) -> Wire:
    return b.node("And", x, y) if x.dtype == torch.bool else b.minimum(x, y)


EMITTERS.add("maximum.default", lambda b, x, y: larger(b, *_both(b, x, y)))
EMITTERS.add("minimum.default", lambda b, x, y: smaller(b, *_both(b, x, y)))


def _passing_over_nan(name: str, choose: Callable[[Builder, Wire, Wire], Wire]) -> None:
    def emit(b: AtenBuilder, x: Value, y: Value) -> Wire:
        left, right = _both(b, x, y)
        if not left.dtype.is_floating_point:
            return choose(b, left, right)
        return b.where(is_nan(b, left), right, b.where(is_nan(b, right), left, choose(b, left, right)))

    EMITTERS.add(name, emit)


_passing_over_nan("fmax.default", larger)
_passing_over_nan("fmin.default", smaller)


@EMITTERS.row("atan2.default")
def atan2(b: AtenBuilder, x: Value, y: Value) -> Wire:
    """The angle of the point (y, x): ``atan(x / y)``, moved by half a turn where y is negative."""
    above, right = _both(b, x, y)
    half_turn = b.where(is_negative(b, above), -math.pi, b.wire(math.pi, above.dtype))
    is_right_zero = b.compare("Equal", right, 0)
    slope = b.node("Atan", b.node("Div", above, b.where(is_right_zero, 1, right)))
    steep = b.node("Mul", b.node("Sign", above), math.pi / 2)
    angle = b.where(is_right_zero, steep, slope)
    shifted = b.where(is_right_zero, half_turn, b.node("Add", slope, half_turn))
    is_turned = b.node(
        "And", is_negative(b, right), b.node("Or", b.negate(is_right_zero), b.compare("Equal", above, 0))
    )
    return b.where(is_turned, shifted, angle)


@EMITTERS.row("xlogy.Tensor")
def xlogy(b: AtenBuilder, x: Value, y: Value) -> Wire:
    left, right = _both(b, x, y)
    is_zero = b.node("And", b.compare("Equal", left, 0), b.negate(is_nan(b, right)))
    return b.where(is_zero, 0, b.node("Mul", left, b.node("Log", right)))


@EMITTERS.row("hypot.default")
def hypot(b: AtenBuilder, x: Value, y: Value) -> Wire:
    left, right = _both(b, x, y)
    return b.node("Sqrt", b.node("Add", b.node("Mul", left, left), b.node("Mul", right, right)))


@EMITTERS.row("copysign.Tensor", "copysign.Scalar")
def copysign(b: AtenBuilder, x: Value, y: Value) -> Wire:
    left, right = _both(b, x, y)
    size = b.node("Abs", left)
    return b.where(is_negative(b, right), b.node("Neg", size), size)


@EMITTERS.row("heaviside.default")
def heaviside(b: AtenBuilder, x: Operand, values: Operand) -> Wire:
    step = b.cast(b.compare("Greater", x, 0), x.dtype)
    return b.where(b.compare("Equal", x, 0), b.cast(values, x.dtype), step)


@EMITTERS.row("logaddexp.default")
def logaddexp(b: AtenBuilder, x: Operand, y: Operand) -> Wire:
    left, right = _both(b, x, y)
    apart = b.node("Neg", b.node("Abs", b.node("Sub", left, right)))
    return b.node("Add", b.node("Max", left, right), log1p(b, b.node("Exp", apart)))


@EMITTERS.row("lerp.Scalar", "lerp.Tensor")
def lerp(b: AtenBuilder, start: Operand, end: Operand, weight: Value) -> Wire:
    part = b.node("Mul", b.node("Sub", end, start), b.typed(weight, start.dtype))
    return b.node("Add", start, part)


@EMITTERS.row("addcmul.default")
def addcmul(b: AtenBuilder, x: Operand, first: Operand, second: Operand, *, value: Number = 1) -> Wire:
    product = b.arithmetic("Mul", *_both(b, first, second))
    return b.arithmetic("Add", b.typed(x, product.dtype), _times(b, product, value))


@EMITTERS.row("addcdiv.default")
def addcdiv(b: AtenBuilder, x: Operand, first: Operand, second: Operand, *, value: Number = 1) -> Wire:
    quotient = b.node("Div", *_both(b, first, second))
    return b.node("Add", b.typed(x, quotient.dtype), _times(b, quotient, value))


# Bits and logic.


def _bits(name: str, of_bools: str, of_integers: str) -> None:
    def emit(b: AtenBuilder, x: Value, y: Value) -> Wire:
        left, right = _both(b, x, y)
        if left.dtype == torch.bool:
            return b.node(of_bools, left, right)
        if b.opset < 18:
            raise UnsupportedError(f"bits of integers need opset 18, this is {b.opset}; export with opset=18")
        return b.node(of_integers, left, right)

    for overload in ("Tensor", "Scalar"):
        EMITTERS.add(f"{name}.{overload}", emit)


_bits("bitwise_and", "And", "BitwiseAnd")
_bits("bitwise_or", "Or", "BitwiseOr")
_bits("bitwise_xor", "Xor", "BitwiseXor")


@EMITTERS.row("bitwise_left_shift.Tensor", "bitwise_left_shift.Tensor_Scalar")
def left_shift(b: AtenBuilder, x: Operand, y: Value) -> Wire:
    left, right = _both(b, x, y)
    return b.arithmetic("Mul", left, b.arithmetic("Pow", b.wire(2, left.dtype), right))


@EMITTERS.row("bitwise_right_shift.Tensor", "bitwise_right_shift.Tensor_Scalar")
def right_shift(b: AtenBuilder, x: Operand, y: Value) -> Wire:
    left, right = _both(b, x, y)
    return _floor_quotient(b, left, b.arithmetic("Pow", b.wire(2, left.dtype), right))


def _logical(name: str, kind: str) -> None:
    EMITTERS.add(f"{name}.default", lambda b, x, y: b.node(kind, b.truth(x), b.truth(y)))


_logical("logical_and", "And")
_logical("logical_or", "Or")
_logical("logical_xor", "Xor")


def compare(b: AtenBuilder, name: str, x: Value, y: Value) -> Wire:
    """``eq``, ``ne``, ``lt``, ``le``, ``gt`` or ``ge`` in the dtype that torch compares in; bools as 0 and 1."""
    left, right = (b.cast(v, torch.int32) if v.dtype == torch.bool else v for v in b.promoted(x, y))
    if name in ("le", "ge"):  # not the opposite of the strict one: with a value that is no number both are false
        strict = b.compare("Less" if name == "le" else "Greater", left, right)
        return b.node("Or", strict, b.compare("Equal", left, right))
    found = b.compare({"eq": "Equal", "ne": "Equal", "lt": "Less", "gt": "Greater"}[name], left, right)
    return b.negate(found) if name == "ne" else found


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    for _overload in ("Tensor", "Scalar"):
        EMITTERS.add(f"{_name}.{_overload}", lambda b, x, y, name=_name: compare(b, name, x, y))


# Choice and limits.


@EMITTERS.row("where.self")
def where(b: AtenBuilder, condition: Operand, x: Value, y: Value) -> Wire:
    return b.where(b.truth(condition), *_both(b, x, y))


@EMITTERS.row("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(b: AtenBuilder, x: Operand, mask: Operand, value: Value) -> Wire:
    return b.where(mask, b.typed(value, x.dtype), x)


@EMITTERS.row("clamp.default", "clamp.Tensor", "clip.default")
def clamp(b: AtenBuilder, x: Operand, min: Value | None = None, max: Value | None = None) -> Wire:  # noqa: A002
    wide: Wire = b.typed(x, b.result.dtype)
    if min is not None:
        wide = larger(b, wide, b.typed(min, wide.dtype))
    return wide if max is None else smaller(b, wide, b.typed(max, wide.dtype))


@EMITTERS.row("clamp_min.default", "clamp_min.Tensor")
def clamp_min(b: AtenBuilder, x: Operand, min: Value) -> Wire:  # noqa: A002
    return clamp(b, x, min)


@EMITTERS.row("clamp_max.default", "clamp_max.Tensor")
def clamp_max(b: AtenBuilder, x: Operand, max: Value) -> Wire:  # noqa: A002
    return clamp(b, x, None, max)
