"""``flow.math``: functions of one blob, element by element.

``abs``, ``negative``, ``sign``, ``square``, ``relu``, ``logical_not`` and the clipping functions take every dtype; the
others take float blobs. The result has the shape of x, and its dtype unless the function says otherwise.
"""

from __future__ import annotations

from oneflow.engine.ir.blob import Blob, emit
from oneflow.engine.ops import activation as activations
from oneflow.engine.ops import unary as rows

Number = int | float


def relu(x: Blob, name: str | None = None) -> Blob:
    """The larger of x and 0."""
    return emit(rows.relu, x, name=name)


def sigmoid(x: Blob, name: str | None = None) -> Blob:
    """1 / (1 + exp(-x))."""
    return emit(rows.sigmoid, x, name=name)


def tanh(x: Blob, name: str | None = None) -> Blob:
    """The hyperbolic tangent of x."""
    return emit(rows.tanh, x, name=name)


tanh_v2 = tanh


def mish(x: Blob, name: str | None = None) -> Blob:
    """x · tanh(log(1 + exp(x)))."""
    return emit(activations.mish, x, name=name)


def gelu(x: Blob, name: str | None = None) -> Blob:
    """x times the normal distribution function of x, by the exact error function."""
    return emit(rows.gelu, x, name=name)


def abs(x: Blob, name: str | None = None) -> Blob:
    """The absolute value of x."""
    return emit(rows.abs, x, name=name)


def negative(x: Blob, name: str | None = None) -> Blob:
    """-x."""
    return emit(rows.negative, x, name=name)


def sign(x: Blob, name: str | None = None) -> Blob:
    """-1, 0 or 1, as x is negative, zero or positive."""
    return emit(rows.sign, x, name=name)


def square(x: Blob, name: str | None = None) -> Blob:
    """x * x."""
    return emit(rows.square, x, name=name)


def logical_not(x: Blob, name: str | None = None) -> Blob:
    """int8: 1 where x is 0."""
    return emit(rows.logical_not, x, name=name)


def acos(x: Blob, name: str | None = None) -> Blob:
    """The angle from 0 to pi whose cosine is x."""
    return emit(rows.acos, x, name=name)


def acosh(x: Blob, name: str | None = None) -> Blob:
    """The inverse hyperbolic cosine of x."""
    return emit(rows.acosh, x, name=name)


def asin(x: Blob, name: str | None = None) -> Blob:
    """The angle from -pi/2 to pi/2 whose sine is x."""
    return emit(rows.asin, x, name=name)


def asinh(x: Blob, name: str | None = None) -> Blob:
    """The inverse hyperbolic sine of x."""
    return emit(rows.asinh, x, name=name)


def atan(x: Blob, name: str | None = None) -> Blob:
    """The angle from -pi/2 to pi/2 whose tangent is x."""
    return emit(rows.atan, x, name=name)


def atanh(x: Blob, name: str | None = None) -> Blob:
    """The inverse hyperbolic tangent of x."""
    return emit(rows.atanh, x, name=name)


def cos(x: Blob, name: str | None = None) -> Blob:
    """The cosine of x."""
    return emit(rows.cos, x, name=name)


def cosh(x: Blob, name: str | None = None) -> Blob:
    """The hyperbolic cosine of x."""
    return emit(rows.cosh, x, name=name)


def sin(x: Blob, name: str | None = None) -> Blob:
    """The sine of x."""
    return emit(rows.sin, x, name=name)


def sinh(x: Blob, name: str | None = None) -> Blob:
    """The hyperbolic sine of x."""
    return emit(rows.sinh, x, name=name)


def tan(x: Blob, name: str | None = None) -> Blob:
    """The tangent of x."""
    return emit(rows.tan, x, name=name)


def exp(x: Blob, name: str | None = None) -> Blob:
    """e to the power x."""
    return emit(rows.exp, x, name=name)


def expm1(x: Blob, name: str | None = None) -> Blob:
    """exp(x) - 1, exact near 0."""
    return emit(rows.expm1, x, name=name)


def log(x: Blob, name: str | None = None) -> Blob:
    """The natural logarithm of x."""
    return emit(rows.log, x, name=name)


def log1p(x: Blob, name: str | None = None) -> Blob:
    """log(1 + x), exact near 0."""
    return emit(rows.log1p, x, name=name)


def log_sigmoid(x: Blob, name: str | None = None) -> Blob:
    """log(sigmoid(x)), without overflow."""
    return emit(rows.log_sigmoid, x, name=name)


def softplus(x: Blob, name: str | None = None) -> Blob:
    """log(1 + exp(x)), without overflow."""
    return emit(rows.softplus, x, name=name)


def erf(x: Blob, name: str | None = None) -> Blob:
    """The error function of x."""
    return emit(rows.erf, x, name=name)


def erfc(x: Blob, name: str | None = None) -> Blob:
    """1 - erf(x)."""
    return emit(rows.erfc, x, name=name)


def lgamma(x: Blob, name: str | None = None) -> Blob:
    """The logarithm of the absolute value of the gamma function of x."""
    return emit(rows.lgamma, x, name=name)


def sqrt(x: Blob, name: str | None = None) -> Blob:
    """The square root of x."""
    return emit(rows.sqrt, x, name=name)


def rsqrt(x: Blob, name: str | None = None) -> Blob:
    """1 / sqrt(x)."""
    return emit(rows.rsqrt, x, name=name)


def reciprocal(x: Blob, name: str | None = None) -> Blob:
    """1 / x."""
    return emit(rows.reciprocal, x, name=name)


def reciprocal_no_nan(x: Blob, name: str | None = None) -> Blob:
    """1 / x, and 0 where x is 0."""
    return emit(rows.reciprocal_no_nan, x, name=name)


def ceil(x: Blob, name: str | None = None) -> Blob:
    """The smallest whole number not below x."""
    return emit(rows.ceil, x, name=name)


def floor(x: Blob, name: str | None = None) -> Blob:
    """The largest whole number not above x."""
    return emit(rows.floor, x, name=name)


def round(x: Blob, name: str | None = None) -> Blob:
    """The nearest whole number; halves go to the even one."""
    return emit(rows.round, x, name=name)


def rint(x: Blob, name: str | None = None) -> Blob:
    """The nearest whole number; halves go to the even one."""
    return emit(rows.rint, x, name=name)


def clip_by_value(
    values: Blob, min_value: Number | None = None, max_value: Number | None = None, name: str | None = None
) -> Blob:
    """``values`` held between two numbers; one of them may be None. The gradient is 0 where a value was cut."""
    return emit(rows.clip_by_value, values, low=min_value, high=max_value, name=name)


sigmoid_v2 = sigmoid
clip_by_scalar = clip_by_value
clip = clip_by_value
clamp = clip_by_value
