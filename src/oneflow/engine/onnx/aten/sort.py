"""Emitters of aten's orders. TopK puts the earlier of equal elements first, as a stable sort does."""

from __future__ import annotations

import torch

from oneflow.engine.core.errors import UnsupportedError
from oneflow.engine.onnx.aten.builder import AtenBuilder, Size
from oneflow.engine.onnx.aten.family import AtenEmitters, place
from oneflow.engine.onnx.builder import Operand, Wire

EMITTERS = AtenEmitters()


def ordered_wide(b: AtenBuilder, x: Operand, dim: int, count: Size, descending: bool) -> tuple[Wire, Wire]:
    """The first ``count`` values of x in order along a dim, and their int64 places."""
    narrow = x.dtype in (torch.int8, torch.uint8, torch.bool)
    wide = b.cast(x, torch.int32) if narrow else x
    attributes = {"axis": dim, "largest": int(descending), "sorted": 1}
    values, places = b.many("TopK", [wide, b.vector([count])], [wide.dtype, torch.int64], attributes)
    return b.cast(values, x.dtype), places


def _sorted(b: AtenBuilder, x: Operand, dim: int, descending: bool) -> list[Wire]:
    if not x.rank:
        return [x, b.constant(torch.tensor(0))]
    axis = place(dim, x.rank)
    return list(ordered_wide(b, x, axis, b.sizes_of(x)[axis], descending))


@EMITTERS.row("sort.default")
def sort(b: AtenBuilder, x: Operand, dim: int = -1, descending: bool = False) -> list[Wire]:
    return _sorted(b, x, dim, descending)


@EMITTERS.row("sort.stable")
def stable_sort(
    b: AtenBuilder, x: Operand, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> list[Wire]:
    return _sorted(b, x, dim, descending)


@EMITTERS.row("topk.default", follows=["k"])
def topk(b: AtenBuilder, x: Operand, k: Size, dim: int = -1, largest: bool = True, sorted: bool = True) -> list[Wire]:  # noqa: A002
    return list(ordered_wide(b, x, place(dim, x.rank), k, largest))


@EMITTERS.row("kthvalue.default")
def kthvalue(b: AtenBuilder, x: Operand, k: int, dim: int = -1, keepdim: bool = False) -> list[Wire]:
    axis = place(dim, x.rank)
    lasts = [b.slice(wire, axis, k - 1, k) for wire in ordered_wide(b, x, axis, k, False)]
    return lasts if keepdim else [b.squeeze(wire, axis) for wire in lasts]


@EMITTERS.row("isin.Tensor_Tensor")
def isin(
    b: AtenBuilder, elements: Operand, test: Operand, *, assume_unique: bool = False, invert: bool = False
) -> Wire:
    values, wanted = (b.cast(v, torch.int32) if v.dtype == torch.bool else v for v in b.promoted(elements, test))
    equal = b.compare("Equal", b.unsqueeze(values, elements.rank), b.reshape(wanted, [-1]))
    count = b.reduce("ReduceSum", b.cast(equal, torch.int64), [elements.rank], keepdims=False)
    return b.compare("Equal" if invert else "Greater", count, 0)


@EMITTERS.row("searchsorted.Tensor")
def searchsorted(
    b: AtenBuilder,
    edges: Operand,
    x: Operand,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Operand | None = None,
) -> Wire:
    """As ``bucketize``, but each row may have edges of its own."""
    if sorter is not None:
        raise UnsupportedError("searchsorted with a sorter; sort the edges first")
    values, ordered = b.promoted(x, edges)
    wide = b.unsqueeze(ordered, edges.rank - 1) if edges.rank > 1 else ordered
    return _below(b, b.unsqueeze(values, x.rank), wide, x.rank, right or side == "right")


def _below(b: AtenBuilder, values: Wire, edges: Wire, dim: int, right: bool) -> Wire:
    """How many edges lie below each value."""
    below = b.compare("Less", edges, values)
    below = b.node("Or", below, b.compare("Equal", edges, values)) if right else below
    return b.reduce("ReduceSum", b.cast(below, b.result.dtype), [dim], keepdims=False)


@EMITTERS.row("bucketize.Tensor")
def bucketize(b: AtenBuilder, x: Operand, boundaries: Operand, *, out_int32: bool = False, right: bool = False) -> Wire:
    """How many boundaries lie below x; with ``right`` also those that equal it."""
    values, edges = b.promoted(x, boundaries)
    return _below(b, b.unsqueeze(values, x.rank), edges, x.rank, right)
