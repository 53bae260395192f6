"""Emitters of aten's matrix products."""

from __future__ import annotations

import torch

from oneflow.engine.onnx.aten.binary import add_wires
from oneflow.engine.onnx.aten.builder import AtenBuilder, Number
from oneflow.engine.onnx.aten.family import AtenEmitters, place
from oneflow.engine.onnx.builder import Operand, Wire

EMITTERS = AtenEmitters()


def last_two_swapped(b: AtenBuilder, x: Operand) -> Wire:
    return b.transpose(x, [*range(x.rank - 2), x.rank - 1, x.rank - 2])


for _name in ("mm", "bmm", "mv", "matmul", "dot", "vdot"):
    EMITTERS.add(f"{_name}.default", lambda b, x, y: b.node("MatMul", x, y))


@EMITTERS.row("addmm.default", "addmv.default", "addbmm.default", "baddbmm.default", "addr.default")
def add_product(
    b: AtenBuilder, x: Operand, left: Operand, right: Operand, *, beta: Number = 1, alpha: Number = 1
) -> Wire:
    """beta * x + alpha * product. With beta 0 torch does not look at x, which may be no number."""
    if left.rank == right.rank == 2 and x.rank <= 2 and left.dtype.is_floating_point and beta != 0:
        return b.node("Gemm", left, right, x, dtype=left.dtype, alpha=float(alpha), beta=float(beta))
    product = _scaled(b, _product(b, left, right), alpha)
    if beta == 0:
        return b.expand_like(product, b.result)
    return add_wires(b, _scaled(b, x, beta), product)


def _product(b: AtenBuilder, left: Operand, right: Operand) -> Wire:
    if left.rank == right.rank == 1:  # addr
        return b.node("Mul", b.unsqueeze(left, 1), b.unsqueeze(right, 0))
    product = b.node("MatMul", left, right)
    return b.reduce("ReduceSum", product, [0], keepdims=False) if b.result.rank < left.rank == 3 else product


def _scaled(b: AtenBuilder, x: Wire, factor: Number) -> Wire:
    return x if factor == 1 else b.node("Mul", x, factor)


@EMITTERS.row("linear.default")
def linear(b: AtenBuilder, x: Operand, weight: Operand, bias: Operand | None = None) -> Wire:
    product = b.node("MatMul", x, last_two_swapped(b, weight) if weight.rank == 2 else weight)
    return product if bias is None else b.node("Add", product, bias)


@EMITTERS.row("_trilinear.default")
def trilinear(
    b: AtenBuilder,
    x: Operand,
    y: Operand,
    z: Operand,
    expand1: list[int],
    expand2: list[int],
    expand3: list[int],
    sumdim: list[int],
    unroll_dim: int = 1,
) -> Wire:
    """The product of the three, each with new dims where it has none, summed."""
    wide = [b.unsqueeze(value, *dims) if dims else value for value, dims in ((x, expand1), (y, expand2), (z, expand3))]
    product = b.node("Mul", b.node("Mul", wide[0], wide[1]), wide[2])
    return b.reduce("ReduceSum", product, sumdim, keepdims=False) if sumdim else product


@EMITTERS.row("linalg_cross.default")
def cross(b: AtenBuilder, x: Operand, y: Operand, *, dim: int = -1) -> Wire:
    """x[1] * y[2] - x[2] * y[1], and so on round."""
    axis = place(dim, b.result.rank) - b.result.rank

    def turned(value: Operand, order: list[int]) -> Wire:
        return b.node("Gather", value, b.ints(order), axis=axis)

    first = b.node("Mul", turned(x, [1, 2, 0]), turned(y, [2, 0, 1]))
    return b.node("Sub", first, b.node("Mul", turned(x, [2, 0, 1]), turned(y, [1, 2, 0])))


@EMITTERS.row("_cdist_forward.default")
def cdist(b: AtenBuilder, x: Operand, y: Operand, p: float, compute_mode: int | None = None) -> Wire:
    """The p-norm of the difference of every pair of rows."""
    apart = b.node("Abs", b.node("Sub", b.unsqueeze(x, x.rank - 1), b.unsqueeze(y, y.rank - 2)))
    last = x.rank
    if p == 0:
        return b.reduce("ReduceSum", b.cast(b.compare("Greater", apart, 0), x.dtype), [last], keepdims=False)
    if p == float("inf"):
        return b.reduce("ReduceMax", apart, [last], keepdims=False)
    total = b.reduce("ReduceSum", b.node("Pow", apart, p), [last], keepdims=False)
    return b.node("Pow", total, 1 / p)


@EMITTERS.row("tril.default")
def tril(b: AtenBuilder, x: Operand, diagonal: int = 0) -> Wire:
    return _part(b, x, torch.ones(x.sizes([x.rank - 2, x.rank - 1]), dtype=torch.bool).tril(diagonal))


@EMITTERS.row("triu.default")
def triu(b: AtenBuilder, x: Operand, diagonal: int = 0) -> Wire:
    return _part(b, x, torch.ones(x.sizes([x.rank - 2, x.rank - 1]), dtype=torch.bool).triu(diagonal))


def _part(b: AtenBuilder, x: Operand, kept: torch.Tensor) -> Wire:
    if x.dtype == torch.bool:
        return b.node("And", x, b.constant(kept))
    return b.where(b.constant(kept), x, b.wire(0, x.dtype))
