"""Functions of one tensor, element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from oneflow.engine.ops.elementwise import number_like, require_blob, require_float
from oneflow.engine.ops.row import Family, Op, require

ROWS = Family()


def _any(name: str, function: Callable[[Tensor], Tensor], precision: str | None = None) -> Op:
    """A row for tensors of every dtype, which it keeps."""
    return ROWS.add(name, lambda x: function(require_blob(x)), precision=precision)


def _float(name: str, function: Callable[[Tensor], Tensor], precision: str | None = None) -> Op:
    """A row for float tensors only: torch would turn integers into float32 without a word."""
    return ROWS.add(name, lambda x: function(require_float(x)), precision=precision)


relu = _any("math.relu", torch.relu, "clear")
sigmoid = _float("math.sigmoid", torch.sigmoid, "gray")
tanh = _float("math.tanh", torch.tanh, "gray")
gelu = _float("math.gelu", F.gelu, "gray")

abs = _any("math.abs", torch.abs)
negative = _any("math.negative", torch.neg)
sign = _any("math.sign", torch.sign)
square = _any("math.square", torch.square)
logical_not = _any("math.logical_not", lambda x: torch.logical_not(x).to(torch.int8))

acos = _float("math.acos", torch.acos)
acosh = _float("math.acosh", torch.acosh)
asin = _float("math.asin", torch.asin)
asinh = _float("math.asinh", torch.asinh)
atan = _float("math.atan", torch.atan)
atanh = _float("math.atanh", torch.atanh)
cos = _float("math.cos", torch.cos)
cosh = _float("math.cosh", torch.cosh)
sin = _float("math.sin", torch.sin)
sinh = _float("math.sinh", torch.sinh)
tan = _float("math.tan", torch.tan)

exp = _float("math.exp", torch.exp)
expm1 = _float("math.expm1", torch.expm1)
log = _float("math.log", torch.log)
log1p = _float("math.log1p", torch.log1p)
log_sigmoid = _float("math.log_sigmoid", F.logsigmoid)
softplus = _float("math.softplus", F.softplus)
erf = _float("math.erf", torch.erf)
erfc = _float("math.erfc", torch.erfc)
lgamma = _float("math.lgamma", torch.lgamma)

sqrt = _float("math.sqrt", torch.sqrt, "gray")
rsqrt = _float("math.rsqrt", torch.rsqrt)
reciprocal = _float("math.reciprocal", torch.reciprocal)

ceil = _float("math.ceil", torch.ceil)
floor = _float("math.floor", torch.floor)
# torch.round sends halves to the even neighbour, which is what both names mean.
round = _float("math.round", torch.round)
rint = _float("math.rint", torch.round)


@ROWS.op("math.reciprocal_no_nan")
def reciprocal_no_nan(x: Tensor) -> Tensor:
    """1 / x, and 0 (with gradient 0) where x is 0."""
    zero = require_float(x) == 0
    return torch.reciprocal(x.masked_fill(zero, 1)).masked_fill(zero, 0)


@ROWS.op("math.clip_by_value")
def clip_by_value(x: Tensor, low: Any, high: Any) -> Tensor:
    """x held between two numbers, of which one may be None; the gradient is 0 where x was cut."""
    low = None if low is None else number_like(low, require_blob(x).dtype)
    high = None if high is None else number_like(high, require_blob(x).dtype)
    require(low is not None or high is not None, "clipping takes a lower bound, an upper bound or both; got neither")
    require(low is None or high is None or low <= high, f"the lower bound {low!r} is above the upper bound {high!r}")
    return torch.clamp(x, low, high)
