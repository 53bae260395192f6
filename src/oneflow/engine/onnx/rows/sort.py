"""Emitters of ``oneflow.engine.ops.sort``. TopK puts the earlier of equal elements first, as a stable sort does."""

from __future__ import annotations

import torch

from oneflow.engine.onnx.builder import Builder, Operand, Wire
from oneflow.engine.onnx.family import Emitters
from oneflow.engine.ops.array import axis_of

EMITTERS = Emitters()


def ordered(b: Builder, x: Operand, dim: int, count: int, descending: bool) -> tuple[Wire, Wire]:
    """The first ``count`` values of x in order along a dim, and their int64 places."""
    narrow = x.dtype in (torch.int8, torch.uint8)
    wide = b.cast(x, torch.int32) if narrow else x
    attributes = {"axis": dim, "largest": int(descending), "sorted": 1}
    values, places = b.many("TopK", [wide, b.ints([count])], [wide.dtype, torch.int64], attributes)
    return values, places


@EMITTERS.row("sort")
def sort(b: Builder, x: Operand, axis: int, descending: bool) -> Wire:
    dim = axis_of(axis, x.rank)
    return b.cast(ordered(b, x, dim, x.size(dim), descending)[0], x.dtype)


@EMITTERS.row("argsort")
def argsort(b: Builder, x: Operand, axis: int, descending: bool) -> Wire:
    dim = axis_of(axis, x.rank)
    return b.cast(ordered(b, x, dim, x.size(dim), descending)[1], torch.int32)
