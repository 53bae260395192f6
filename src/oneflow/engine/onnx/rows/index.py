"""Emitters of ``oneflow.engine.ops.index``."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from oneflow.engine.onnx.builder import Builder, Operand, Wire
from oneflow.engine.onnx.family import Emitters
from oneflow.engine.ops.array import axis_of
from oneflow.engine.ops.index import Bounds

EMITTERS = Emitters()


def places(b: Builder, indices: Wire) -> Wire:
    """Indices in the dtype that ONNX indexes with."""
    return b.cast(indices, torch.int64)


@EMITTERS.row("slice")
def slice_(b: Builder, x: Operand, begin: tuple[int | None, ...], size: tuple[int | None, ...]) -> Wire:
    part: Wire = x
    for dim, (first, wanted) in enumerate(zip(begin, size, strict=True)):
        count = None if wanted == -1 else wanted
        if first in (None, 0) and count is None:
            continue
        start = first or 0
        start = start + x.size(dim) if start < 0 else start
        part = b.slice(part, dim, start, 2**63 - 1 if count is None else start + count)
    return part


@dataclass(frozen=True)
class Cut:
    """The places of one dim that a Python slice takes, in its order."""

    dim: int
    taken: range


def _cuts(x: Operand, bounds: tuple[Bounds, ...]) -> list[Cut]:
    """One for each dim of which not everything is taken."""
    partial = [
        (dim, bound)
        for dim, bound in enumerate(bounds)
        if bound[0] not in (None, 0) or bound[1] is not None or bound[2] not in (None, 1)
    ]
    return [Cut(dim, range(x.size(dim))[slice(*bound)]) for dim, bound in partial]


def _take(b: Builder, x: Wire, cut: Cut) -> Wire:
    first, last, step = cut.taken[0], cut.taken[-1], cut.taken.step
    stop = last + 1 if step > 0 else last - 1
    return b.slice(x, cut.dim, first, -(2**63) if stop < 0 else stop, step)


@EMITTERS.row("slice_v2")
def slice_v2(b: Builder, x: Operand, bounds: tuple[Bounds, ...]) -> Wire:
    part: Wire = x
    for cut in _cuts(x, bounds):
        part = _take(b, part, cut)
    return part


@EMITTERS.row("slice_update")
def slice_update(b: Builder, x: Operand, update: Operand, bounds: tuple[Bounds, ...]) -> Wire:
    return put(b, x, x.rank, update, _cuts(x, bounds))


def put(b: Builder, x: Wire, rank: int, update: Wire, cuts: list[Cut]) -> Wire:
    """x with ``update`` at the cuts: along the first of them, the slices that it takes with the update put in at the
    others."""
    if not cuts:
        return update
    cut, *others = cuts
    inner = put(b, _take(b, x, cut), rank, update, others)
    swapped = list(range(rank))
    swapped[0], swapped[cut.dim] = cut.dim, 0
    where = b.constant(torch.tensor(list(cut.taken), dtype=torch.int64).unsqueeze(1))
    return b.transpose(b.node("ScatterND", b.transpose(x, swapped), where, b.transpose(inner, swapped)), swapped)


@EMITTERS.row("gather")
def gather(b: Builder, params: Operand, indices: Operand, axis: int, batch_dims: int) -> Wire:
    if batch_dims == 0:
        return b.node("Gather", params, places(b, indices), axis=axis_of(axis, params.rank))
    return b.node("GatherND", params, b.unsqueeze(places(b, indices), indices.rank), batch_dims=batch_dims)


@EMITTERS.row("gather_nd")
def gather_nd(b: Builder, params: Operand, indices: Operand) -> Wire:
    return b.node("GatherND", params, places(b, indices))


@EMITTERS.row("dim_gather")
def dim_gather(b: Builder, x: Operand, index: Operand, dim: int) -> Wire:
    return b.node("GatherElements", x, places(b, index), axis=axis_of(dim, x.rank))


@EMITTERS.row("one_hot")
def one_hot(
    b: Builder, indices: Operand, depth: int, on_value: float, off_value: float, axis: int, dtype: torch.dtype
) -> Wire:
    """Not ONNX's OneHot, which counts negative indices from the end."""
    dim = axis_of(axis, indices.rank + 1)
    steps = b.constant(torch.arange(depth).reshape([-1] + [1] * (indices.rank - dim)))
    hit = b.compare("Equal", b.unsqueeze(places(b, indices), dim), steps)
    return b.where(hit, b.wire(on_value, dtype), b.wire(off_value, dtype))
