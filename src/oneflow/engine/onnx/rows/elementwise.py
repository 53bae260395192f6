"""Emitters of ``oneflow.engine.ops.elementwise``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from oneflow.engine.onnx.builder import Builder, Operand, Wire
from oneflow.engine.onnx.family import Emitters

EMITTERS = Emitters()

Operands = Wire | int | float


def wires(b: Builder, x: Operands, y: Operands) -> tuple[Wire, Wire]:
    """Both operands as wires; a number takes the dtype of the other."""
    dtype = next(v.dtype for v in (x, y) if isinstance(v, Wire))
    return b.wire(x, dtype), b.wire(y, dtype)


def _arithmetic(name: str, kind: str) -> None:
    EMITTERS.add(name, lambda b, x, y: b.arithmetic(kind, *wires(b, x, y)))


_arithmetic("math.add", "Add")
_arithmetic("math.subtract", "Sub")
_arithmetic("math.multiply", "Mul")
_arithmetic("math.maximum", "Max")
_arithmetic("math.minimum", "Min")
_arithmetic("math.pow", "Pow")


@EMITTERS.row("math.divide")
def divide(b: Builder, x: Operands, y: Operands) -> Wire:
    """A number 0 below gives 0, and so does a number above where the blob is 0. ONNX truncates integers as the row
    does."""
    if not isinstance(y, Wire):
        assert isinstance(x, Wire)
        return b.arithmetic("Mul", x, 0) if y == 0 else b.arithmetic("Div", x, y)
    if isinstance(x, Wire):
        return b.arithmetic("Div", x, y)
    zero = b.compare("Equal", y, 0)
    return b.where(zero, 0, b.arithmetic("Div", *wires(b, x, b.where(zero, 1, y))))


@EMITTERS.row("math.mod")
def mod(b: Builder, x: Operands, y: Operands) -> Wire:
    """The remainder with the sign of the divisor. ONNX has it for integers only; for floats it keeps the sign of x."""
    x, y = wires(b, x, y)
    if not x.dtype.is_floating_point:
        return b.arithmetic("Mod", x, y)
    rest = b.node("Mod", x, y, fmod=1)
    return b.where(b.compare("Less", b.node("Mul", rest, y), 0), b.node("Add", rest, y), rest)


@EMITTERS.row("math.floordiv")
def floordiv(b: Builder, x: Operands, y: Operands) -> Wire:
    """(x - x mod y) / y, which is whole but for rounding: the floor of x / y is off where that rounds up to a whole
    number."""
    x, y = wires(b, x, y)
    whole = b.arithmetic("Div", b.arithmetic("Sub", x, mod(b, x, y)), y)
    if not x.dtype.is_floating_point:
        return whole
    return b.where(b.compare("Equal", y, 0), b.node("Div", x, y), b.node("Round", whole))


@EMITTERS.row("math.squared_difference")
def squared_difference(b: Builder, x: Operands, y: Operands) -> Wire:
    difference = b.arithmetic("Sub", *wires(b, x, y))
    return b.arithmetic("Mul", difference, difference)


@EMITTERS.row("math.atan2")
def atan2(b: Builder, x: Operands, y: Operands) -> Wire:
    """The angle of the point (y, x): ``atan(x / y)``, moved by half a turn where y is negative."""
    above, right = wires(b, x, y)
    half_turn = b.where(_is_negative(b, above), -math.pi, b.wire(math.pi, above.dtype))
    is_right_zero = b.compare("Equal", right, 0)
    slope = b.node("Atan", b.node("Div", above, b.where(is_right_zero, 1, right)))
    steep = b.node("Mul", b.node("Sign", above), math.pi / 2)
    angle = b.where(is_right_zero, steep, slope)
    shifted = b.where(is_right_zero, half_turn, b.node("Add", slope, half_turn))
    is_turned = b.node(
        "And", _is_negative(b, right), b.node("Or", b.negate(is_right_zero), b.compare("Equal", above, 0))
    )
    return b.where(is_turned, shifted, angle)


def _is_negative(b: Builder, x: Wire) -> Wire:
    """Whether the sign of x is minus, also that of -0."""
    return b.node("Or", b.compare("Less", x, 0), b.compare("Less", b.node("Reciprocal", x), 0))


@EMITTERS.row("math.xlogy")
def xlogy(b: Builder, x: Operands, y: Operands) -> Wire:
    x, y = wires(b, x, y)
    product = b.node("Mul", x, b.node("Log", y))
    is_zero = b.node("And", b.compare("Equal", x, 0), b.negate(b.node("IsNaN", y, dtype=torch.bool)))
    return b.where(is_zero, 0, product)


@EMITTERS.row("math.xdivy")
def xdivy(b: Builder, x: Operands, y: Operands) -> Wire:
    x, y = wires(b, x, y)
    zero = b.compare("Equal", x, 0)
    return b.where(zero, 0, b.node("Div", x, b.where(zero, 1, y)))


def _comparison(name: str, kind: str, opposite: bool = False) -> None:
    """Comparisons give int8."""

    def emit(b: Builder, x: Operands, y: Operands) -> Wire:
        found = b.compare(kind, *wires(b, x, y))
        return b.cast(b.negate(found) if opposite else found, torch.int8)

    EMITTERS.add(name, emit)


_comparison("math.equal", "Equal")
_comparison("math.not_equal", "Equal", opposite=True)
_comparison("math.less", "Less")
_comparison("math.greater", "Greater")


def _or_equal(name: str, kind: str) -> None:
    """Not the opposite of the strict comparison: with a value that is not a number both are false."""

    def emit(b: Builder, x: Operands, y: Operands) -> Wire:
        x, y = wires(b, x, y)
        return b.cast(b.node("Or", b.compare(kind, x, y), b.compare("Equal", x, y)), torch.int8)

    EMITTERS.add(name, emit)


_or_equal("math.less_equal", "Less")
_or_equal("math.greater_equal", "Greater")


def _logical(name: str, kind: str) -> None:
    EMITTERS.add(name, lambda b, x, y: b.cast(b.node(kind, *map(b.truth, wires(b, x, y))), torch.int8))


_logical("math.logical_and", "And")
_logical("math.logical_or", "Or")
_logical("math.logical_xor", "Xor")


@EMITTERS.row("math.add_n")
def add_n(b: Builder, inputs: Sequence[Operand]) -> Wire:
    if inputs[0].dtype.is_floating_point:
        return b.node("Sum", *inputs)
    total: Wire = inputs[0]
    for x in inputs[1:]:
        total = b.arithmetic("Add", total, x)
    return total


@EMITTERS.row("math.polyval")
def polyval(b: Builder, coeffs: Sequence[Any], x: Operand) -> Wire:
    value = b.arithmetic("Mul", x, 0)
    for coefficient in coeffs:
        value = b.arithmetic("Add", *wires(b, b.arithmetic("Mul", value, x), coefficient))
    return value
