"""Emitters of ``oneflow.engine.ops.matmul``."""

from __future__ import annotations

import torch

from oneflow.engine.onnx.builder import Builder, Operand, Wire
from oneflow.engine.onnx.family import Emitters

EMITTERS = Emitters()


def last_two_swapped(b: Builder, x: Operand) -> Wire:
    return b.transpose(x, [*range(x.rank - 2), x.rank - 1, x.rank - 2])


@EMITTERS.row("matmul")
def matmul(
    b: Builder, a: Operand, x: Operand, transpose_a: bool = False, transpose_b: bool = False, alpha: float = 1.0
) -> Wire:
    left = last_two_swapped(b, a) if transpose_a else a
    right = last_two_swapped(b, x) if transpose_b else x
    product = b.node("MatMul", left, right)
    return product if alpha == 1 else b.node("Mul", product, alpha)


def _lower(b: Builder, x: Wire, sizes: list[int], diagonal: int, fill_value: float) -> Wire:
    above = torch.ones(sizes, dtype=torch.bool).triu(diagonal + 1)
    return b.where(b.constant(above), b.wire(fill_value, x.dtype), x)


@EMITTERS.row("math.tril")
def tril(b: Builder, x: Operand, diagonal: int, fill_value: float) -> Wire:
    return _lower(b, x, x.sizes([-2, -1]), diagonal, fill_value)


@EMITTERS.row("math.fused_scale_tril")
def fused_scale_tril(b: Builder, x: Operand, diagonal: int, fill_value: float, scale: float) -> Wire:
    return _lower(b, b.arithmetic("Mul", x, scale), x.sizes([-2, -1]), diagonal, fill_value)
