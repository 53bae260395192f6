"""``flow.math``: functions of two operands, each a blob or a Python number.

Blobs broadcast as in numpy. Two blobs must have one dtype, nothing is promoted; a number adapts to the blob beside it,
and one that an integer blob cannot hold is refused. At least one operand must be a blob.
"""

from __future__ import annotations

from collections.abc import Sequence

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.ir.blob import Blob, emit
from oneflow.engine.ops import elementwise as rows

Operand = Blob | int | float


def add(x: Operand, y: Operand, name: str | None = None) -> Blob:
    """x + y."""
    return emit(rows.add, x, y, name=name)


def subtract(x: Operand, y: Operand, name: str | None = None) -> Blob:
    """x - y."""
    return emit(rows.subtract, x, y, name=name)


def multiply(x: Operand, y: Operand, name: str | None = None) -> Blob:
    """x * y."""
    return emit(rows.multiply, x, y, name=name)


def divide(x: Operand, y: Operand, name: str | None = None) -> Blob:
    """x / y; integers are cut towards zero. A number 0 below gives 0; a number above gives 0 where the blob below is
    0."""
    return emit(rows.divide, x, y, name=name)


def mod(x: Operand, y: Operand, name: str | None = None) -> Blob:
    """The remainder of x / y with the sign of y."""
    return emit(rows.mod, x, y, name=name)


def floordiv(x: Operand, y: Operand, name: str | None = None) -> Blob:
    """x / y, cut down to the next whole number."""
    return emit(rows.floordiv, x, y, name=name)


def pow(x: Operand, y: Operand, name: str | None = None) -> Blob:
    """x to the power y."""
    return emit(rows.pow, x, y, name=name)


def maximum(x: Operand, y: Operand, name: str | None = None) -> Blob:
    """The larger of x and y."""
    return emit(rows.maximum, x, y, name=name)


def minimum(x: Operand, y: Operand, name: str | None = None) -> Blob:
    """The smaller of x and y."""
    return emit(rows.minimum, x, y, name=name)


def squared_difference(x: Operand, y: Operand, name: str | None = None) -> Blob:
    """(x - y) * (x - y)."""
    return emit(rows.squared_difference, x, y, name=name)


def atan2(x: Operand, y: Operand, name: str | None = None) -> Blob:
    """The angle of the point (y, x), where x is given first: atan(x / y) in the right quadrant."""
    return emit(rows.atan2, x, y, name=name)


def xdivy(x: Operand, y: Operand, name: str | None = None) -> Blob:
    """x / y, and 0 where x is 0 whatever y is."""
    return emit(rows.xdivy, x, y, name=name)


def xlogy(x: Operand, y: Operand, name: str | None = None) -> Blob:
    """x * log(y), and 0 where x is 0 whatever y is."""
    return emit(rows.xlogy, x, y, name=name)


def equal(x: Operand, y: Operand, name: str | None = None) -> Blob:
    """int8: 1 where x == y."""
    return emit(rows.equal, x, y, name=name)


def not_equal(x: Operand, y: Operand, name: str | None = None) -> Blob:
    """int8: 1 where x != y."""
    return emit(rows.not_equal, x, y, name=name)


def less(x: Operand, y: Operand, name: str | None = None) -> Blob:
    """int8: 1 where x < y."""
    return emit(rows.less, x, y, name=name)


def less_equal(x: Operand, y: Operand, name: str | None = None) -> Blob:
    """int8: 1 where x <= y."""
    return emit(rows.less_equal, x, y, name=name)


def greater(x: Operand, y: Operand, name: str | None = None) -> Blob:
    """int8: 1 where x > y."""
    return emit(rows.greater, x, y, name=name)


def greater_equal(x: Operand, y: Operand, name: str | None = None) -> Blob:
    """int8: 1 where x >= y."""
    return emit(rows.greater_equal, x, y, name=name)


def logical_and(x: Operand, y: Operand, name: str | None = None) -> Blob:
    """int8: 1 where neither is 0."""
    return emit(rows.logical_and, x, y, name=name)


def logical_or(x: Operand, y: Operand, name: str | None = None) -> Blob:
    """int8: 1 where not both are 0."""
    return emit(rows.logical_or, x, y, name=name)


def logical_xor(x: Operand, y: Operand, name: str | None = None) -> Blob:
    """int8: 1 where exactly one is 0."""
    return emit(rows.logical_xor, x, y, name=name)


def add_n(inputs: Sequence[Blob], name: str | None = None) -> Blob:
    """The sum of a list of blobs of one shape and dtype."""
    return emit(rows.add_n, _listed("add_n", inputs), name=name)


def polyval(coeffs: Sequence[Operand], x: Blob, name: str | None = None) -> Blob:
    """The polynomial of x with the given coefficients, that of the highest power first; none at all give 0."""
    return emit(rows.polyval, _listed("polyval", coeffs), x, name=name)


def _listed(what: str, values: Sequence[Operand]) -> list[Operand]:
    if not isinstance(values, (list, tuple)):
        raise ArgumentError(f"{what} takes a list or a tuple, got {type(values).__name__}")
    return list(values)
