"""Arithmetic and comparison of two operands, each a tensor or a Python number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from oneflow.engine.core.dtype import from_torch
from oneflow.engine.core.errors import DTypeError
from oneflow.engine.ops.row import Family, Op, require

ROWS = Family()


def _name(dtype: torch.dtype) -> str:
    return from_torch(dtype).name


def require_blob(x: Any) -> Tensor:
    """The tensor itself; anything else is refused."""
    if not isinstance(x, Tensor):
        raise DTypeError(f"expected a blob, got {type(x).__name__} {x!r}")
    return x


def require_float(x: Any) -> Tensor:
    """The tensor itself; one of integers is refused."""
    if not require_blob(x).dtype.is_floating_point:
        raise DTypeError(f"expected a float blob, got {_name(x.dtype)}; cast it with flow.cast(x, flow.float32)")
    return x


def number_like(number: Any, dtype: torch.dtype) -> Any:
    """A number in the kind of the tensor beside it; one that an integer tensor cannot hold is refused."""
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise DTypeError(f"expected a blob or a Python number, got {type(number).__name__} {number!r}")
    if dtype.is_floating_point:
        return float(number)
    limits = torch.iinfo(dtype)
    if isinstance(number, float) and not number.is_integer() or not limits.min <= number <= limits.max:
        raise DTypeError(
            f"the number {number!r} does not fit a {_name(dtype)} blob; cast the blob to a type that holds it first"
        )
    return int(number)


def operands(x: Any, y: Any) -> tuple[Any, Any]:
    """Both operands in one dtype: blobs must agree already, numbers adapt."""
    if isinstance(x, Tensor) and isinstance(y, Tensor):
        if x.dtype != y.dtype:
            raise DTypeError(
                f"operands have dtypes {_name(x.dtype)} and {_name(y.dtype)}; cast one of them, nothing is promoted "
                f"silently"
            )
        return x, y
    if isinstance(x, Tensor):
        return x, number_like(y, x.dtype)
    require(isinstance(y, Tensor), "at least one operand must be a blob")
    return number_like(x, y.dtype), y


def _tensors(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Both operands as tensors, for torch functions that take no numbers."""
    x, y = operands(x, y)
    if not isinstance(x, Tensor):
        return torch.full((1,), x, dtype=y.dtype, device=y.device), y
    if not isinstance(y, Tensor):
        return x, torch.full((1,), y, dtype=x.dtype, device=x.device)
    return x, y


def _floats(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Both operands as float tensors, for torch functions that would turn integers into floats."""
    x, y = _tensors(x, y)
    return require_float(x), require_float(y)


def _binary(
    name: str,
    function: Callable[[Any, Any], Tensor],
    *,
    precision: str | None = None,
    convert: Callable[[Any, Any], tuple[Any, Any]] = operands,
) -> Op:
    return ROWS.add(name, lambda x, y: function(*convert(x, y)), precision=precision)


def _compare(name: str, function: Callable[[Any, Any], Tensor]) -> Op:
    """Comparisons give int8, 0 or 1."""
    return ROWS.add(name, lambda x, y: function(*_tensors(x, y)).to(torch.int8))


def _divide(x: Any, y: Any) -> Tensor:
    """Division; integers truncate, a number 0 below gives 0, a number above divides with 0 where the blob is 0."""
    if not isinstance(y, Tensor):
        # Times 0, not a new tensor of zeros: a loss that goes through here still has its gradient, which is 0.
        return x * 0 if y == 0 else _quotient(x, y)
    if not isinstance(x, Tensor):
        zero = y == 0
        return _quotient(x, y.masked_fill(zero, 1)).masked_fill(zero, 0)
    return _quotient(x, y)


def _quotient(x: Any, y: Any) -> Tensor:
    like = x if isinstance(x, Tensor) else y
    return torch.div(x, y) if like.dtype.is_floating_point else torch.div(x, y, rounding_mode="trunc")


add = _binary("math.add", torch.add, precision="gray")
subtract = _binary("math.subtract", lambda x, y: x - y, precision="gray")
multiply = _binary("math.multiply", torch.mul, precision="gray")
divide = _binary("math.divide", _divide, precision="gray")
# Remainder as tensors: torch has no derivative for a number modulo a tensor.
mod = _binary("math.mod", torch.remainder, convert=_tensors)
# torch.floor_divide is the same without a derivative (which is 0).
floordiv = _binary("math.floordiv", lambda x, y: torch.div(x, y, rounding_mode="floor"))
pow = _binary("math.pow", torch.pow)
maximum = _binary("math.maximum", torch.maximum, convert=_tensors)
minimum = _binary("math.minimum", torch.minimum, convert=_tensors)
squared_difference = _binary("math.squared_difference", lambda x, y: torch.square(x - y))
atan2 = _binary("math.atan2", torch.atan2, convert=_floats)
xlogy = _binary("math.xlogy", torch.xlogy, convert=_floats)

equal = _compare("math.equal", torch.eq)
not_equal = _compare("math.not_equal", torch.ne)
less = _compare("math.less", torch.lt)
less_equal = _compare("math.less_equal", torch.le)
greater = _compare("math.greater", torch.gt)
greater_equal = _compare("math.greater_equal", torch.ge)
logical_and = _compare("math.logical_and", torch.logical_and)
logical_or = _compare("math.logical_or", torch.logical_or)
logical_xor = _compare("math.logical_xor", torch.logical_xor)


@ROWS.op("math.xdivy")
def xdivy(x: Any, y: Any) -> Tensor:
    """x / y, and 0 where x is 0 whatever y is."""
    x, y = _floats(x, y)
    zero = x == 0
    return torch.where(zero, torch.zeros_like(x), x / torch.where(zero, torch.ones_like(y), y))


@ROWS.op("math.add_n", precision="gray")
def add_n(inputs: Sequence[Tensor]) -> Tensor:
    """The sum of tensors of one shape."""
    require(len(inputs) > 0, "add_n takes at least one blob")
    total = require_blob(inputs[0])
    for x in inputs[1:]:
        require(require_blob(x).shape == total.shape, "add_n takes blobs of one shape")
        total = torch.add(*operands(total, x))
    return total


@ROWS.op("math.polyval")
def polyval(coeffs: Sequence[Any], x: Tensor) -> Tensor:
    """The polynomial of x whose coefficients (tensors or numbers) are given highest power first; 0 for none."""
    value = torch.zeros_like(require_blob(x))
    for coefficient in coeffs:
        value = torch.add(*operands(value * x, coefficient))
    return value
