"""Emitters of aten's reductions and running sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from oneflow.engine.onnx.aten.builder import AtenBuilder
from oneflow.engine.onnx.aten.family import AtenEmitters, place
from oneflow.engine.onnx.aten.sort import ordered_wide
from oneflow.engine.onnx.builder import Operand, Wire

EMITTERS = AtenEmitters()

Dims = int | Sequence[int] | None
_KERNELS = (torch.float16, torch.float32, torch.float64, torch.int32, torch.int64)


def dims_of(x: Operand, dim: Dims) -> list[int]:
    """The dims counted from the front; none given are all."""
    given = [] if dim is None else [dim] if isinstance(dim, int) else list(dim)
    return sorted(place(d, x.rank) for d in given) or list(range(x.rank))


def with_dims(b: AtenBuilder, x: Operand) -> Operand:
    """x, or a vector of one where x is a number."""
    return x if x.rank else Operand(b.reshape(x, [1]).name, x.dtype, (1,))


def _over(b: AtenBuilder, x: Operand, dim: Dims) -> tuple[Operand, list[int]]:
    """What to reduce and over which dims, of which there is at least one."""
    return (x, dims_of(x, dim)) if x.rank else (with_dims(b, x), [0])


def _reduce(b: AtenBuilder, kind: str, x: Wire, dims: list[int], keepdim: bool) -> Wire:
    """In a dtype that runtimes have a kernel for."""
    wide = x if x.dtype in _KERNELS or x.dtype == torch.bfloat16 else b.cast(x, torch.int32)
    return b.cast(b.reduce(kind, wide, dims, keepdims=keepdim), x.dtype)


def _result_rank(x: Operand, keepdim: bool) -> bool:
    return keepdim and x.rank > 0


def _add(names: Sequence[str], kind: str) -> None:
    def emit(
        b: AtenBuilder, x: Operand, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
    ) -> Wire:
        source, dims = _over(b, x, dim)
        return _reduce(b, kind, b.cast(source, b.result.dtype), dims, _result_rank(x, keepdim))

    for name in names:
        EMITTERS.add(name, emit)


_add(["sum.default", "sum.dim_IntList"], "ReduceSum")
_add(["mean.default", "mean.dim"], "ReduceMean")
_add(["amax.default", "max.default"], "ReduceMax")
_add(["amin.default", "min.default"], "ReduceMin")
_add(["prod.default", "prod.dim_int"], "ReduceProd")


@EMITTERS.row("logsumexp.default")
def logsumexp(b: AtenBuilder, x: Operand, dim: Dims, keepdim: bool = False) -> Wire:
    source, dims = _over(b, x, dim)
    return b.reduce("ReduceLogSumExp", b.cast(source, b.result.dtype), dims, keepdims=_result_rank(x, keepdim))


def _truth(names: Sequence[str], kind: str) -> None:
    def emit(b: AtenBuilder, x: Operand, dim: Dims = None, keepdim: bool = False) -> Wire:
        source, dims = _over(b, x, dim)
        found = b.reduce(kind, b.cast(b.truth(source), torch.int32), dims, keepdims=_result_rank(x, keepdim))
        return b.cast(b.cast(found, torch.bool), b.result.dtype)

    for name in names:
        EMITTERS.add(name, emit)


_truth(["any.default", "any.dim", "any.dims"], "ReduceMax")
_truth(["all.default", "all.dim", "all.dims"], "ReduceMin")


@EMITTERS.row("count_nonzero.default", "count_nonzero.dim_IntList")
def count_nonzero(b: AtenBuilder, x: Operand, dim: Dims = None) -> Wire:
    source, dims = _over(b, x, dim)
    return b.reduce("ReduceSum", b.cast(b.truth(source), torch.int64), dims, keepdims=False)


# Mean and variance.


def _moments(b: AtenBuilder, x: Operand, dim: Dims, correction: float | None, keepdim: bool) -> tuple[Wire, Wire]:
    source, dims = _over(b, x, dim)
    mean = b.reduce("ReduceMean", source, dims)
    centred = b.node("Sub", source, mean)
    squares = b.reduce("ReduceSum", b.node("Mul", centred, centred), dims, keepdims=_result_rank(x, keepdim))
    count = b.node("Sub", b.count(source, dims, x.dtype), 1 if correction is None else correction)
    variance = b.node("Div", squares, b.clip(count, 0, None))
    return variance, b.reduce("ReduceMean", source, dims, keepdims=_result_rank(x, keepdim))


@EMITTERS.row("var.correction")
def var(
    b: AtenBuilder, x: Operand, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> Wire:
    return _moments(b, x, dim, correction, keepdim)[0]


@EMITTERS.row("std.correction")
def std(
    b: AtenBuilder, x: Operand, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> Wire:
    return b.node("Sqrt", _moments(b, x, dim, correction, keepdim)[0])


@EMITTERS.row("var_mean.correction")
def var_mean(
    b: AtenBuilder, x: Operand, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> list[Wire]:
    return list(_moments(b, x, dim, correction, keepdim))


@EMITTERS.row("std_mean.correction")
def std_mean(
    b: AtenBuilder, x: Operand, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> list[Wire]:
    variance, mean = _moments(b, x, dim, correction, keepdim)
    return [b.node("Sqrt", variance), mean]


@EMITTERS.row("linalg_vector_norm.default", "norm.ScalarOpt_dim")
def vector_norm(
    b: AtenBuilder, x: Operand, ord: Any = 2, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> Wire:  # noqa: A002
    order = 2 if ord is None else ord
    source, dims = _over(b, x, dim)
    size, keep = b.node("Abs", b.cast(source, b.result.dtype)), _result_rank(x, keepdim)
    if order in (math.inf, -math.inf):
        return b.reduce("ReduceMax" if order > 0 else "ReduceMin", size, dims, keepdims=keep)
    if order == 0:
        return b.reduce("ReduceSum", b.cast(b.truth(size), size.dtype), dims, keepdims=keep)
    if order in (1, 2):
        return b.reduce(f"ReduceL{int(order)}", size, dims, keepdims=keep)
    return b.node("Pow", b.reduce("ReduceSum", b.node("Pow", size, order), dims, keepdims=keep), 1 / order)


# Extremes with their places.


def _place_of(b: AtenBuilder, x: Operand, dim: int, keepdim: bool, largest: bool) -> Wire:
    """Of equal elements the first. ONNX Runtime's ArgMax takes no int64."""
    if x.dtype.is_floating_point:
        return b.node("ArgMax" if largest else "ArgMin", x, dtype=torch.int64, axis=dim, keepdims=int(keepdim))
    places = ordered_wide(b, x, dim, 1, largest)[1]
    return places if keepdim else b.squeeze(places, dim)


def _extreme(name: str, kind: str, largest: bool) -> None:
    def emit(b: AtenBuilder, x: Operand, dim: int, keepdim: bool = False) -> list[Wire]:
        source, keep = with_dims(b, x), _result_rank(x, keepdim)
        axis = place(dim, x.rank)
        return [_reduce(b, kind, source, [axis], keep), _place_of(b, source, axis, keep, largest)]

    EMITTERS.add(name, emit)


_extreme("max.dim", "ReduceMax", True)
_extreme("min.dim", "ReduceMin", False)


def _argument(name: str, largest: bool) -> None:
    def emit(b: AtenBuilder, x: Operand, dim: int | None = None, keepdim: bool = False) -> Wire:
        if dim is None:
            flat = Operand(
                b.reshape(x, [-1]).name, x.dtype, (math.prod(x.shape),), frozenset([0] if x.batch_dims else [])
            )
            return b.reshape_like(_place_of(b, flat, 0, False, largest), b.result)
        return _place_of(b, with_dims(b, x), place(dim, x.rank), _result_rank(x, keepdim), largest)

    EMITTERS.add(name, emit)


_argument("argmax.default", True)
_argument("argmin.default", False)


@EMITTERS.row("aminmax.default")
def aminmax(b: AtenBuilder, x: Operand, *, dim: int | None = None, keepdim: bool = False) -> list[Wire]:
    source, dims = _over(b, x, dim)
    return [_reduce(b, kind, source, dims, _result_rank(x, keepdim)) for kind in ("ReduceMin", "ReduceMax")]


# Running sums.


@EMITTERS.row("cumsum.default")
def cumsum(b: AtenBuilder, x: Operand, dim: int, *, dtype: torch.dtype | None = None) -> Wire:
    wide = b.cast(x, b.result.dtype)
    return wide if not x.rank else b.node("CumSum", wide, b.constant(torch.tensor(place(dim, x.rank))))


@EMITTERS.row("cumprod.default")
def cumprod(b: AtenBuilder, x: Operand, dim: int, *, dtype: torch.dtype | None = None) -> Wire:
    """ONNX has no running product: for each place the product of all, with 1 for those behind it."""
    wide = b.cast(x, b.result.dtype)
    if not x.rank:
        return wide
    axis = place(dim, x.rank)
    count = x.size(axis)
    until = torch.ones(count, count, dtype=torch.bool).tril().reshape(count, count, *[1] * (x.rank - 1 - axis))
    rows = b.where(b.constant(until), b.unsqueeze(wide, axis), 1)
    return b.reduce("ReduceProd", rows, [axis + 1], keepdims=False)


EMITTERS.cannot(
    "ONNX has no running maximum, minimum or logarithm of sums; compute it outside of the model",
    *("cummax.default", "cummin.default", "logcumsumexp.default"),
)
EMITTERS.cannot(
    "ONNX has no most frequent value, nor a median that passes over NaN", "nanmedian.default", "mode.default"
)


@EMITTERS.row("median.dim")
def median(b: AtenBuilder, x: Operand, dim: int, keepdim: bool = False) -> list[Wire]:
    """The lower of the two in the middle."""
    axis = place(dim, x.rank)
    middle = (x.size(axis) + 1) // 2
    lasts = [b.slice(wire, axis, middle - 1, middle) for wire in ordered_wide(b, x, axis, middle, False)]
    return lasts if keepdim else [b.squeeze(wire, axis) for wire in lasts]


@EMITTERS.row("nansum.default")
def nansum(
    b: AtenBuilder, x: Operand, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Wire:
    source, dims = _over(b, x, dim)
    kept = b.where(b.node("IsNaN", source, dtype=torch.bool), 0, source) if x.dtype.is_floating_point else source
    return _reduce(b, "ReduceSum", b.cast(kept, b.result.dtype), dims, _result_rank(x, keepdim))
