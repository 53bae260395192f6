"""Emitters of ``oneflow.engine.ops.scatter``. Sums need opset 16, where ScatterND and ScatterElements learnt to add."""

from __future__ import annotations

import torch

from oneflow.engine.onnx.builder import Builder, Operand, Wire
from oneflow.engine.onnx.family import Emitters
from oneflow.engine.onnx.rows.index import places
from oneflow.engine.ops.array import axis_of

EMITTERS = Emitters()


def _zeros(b: Builder, shape: Wire, dtype: torch.dtype) -> Wire:
    return b.node("ConstantOfShape", shape, dtype=dtype, value=torch.zeros(1, dtype=dtype))


@EMITTERS.row("scatter_nd")
def scatter_nd(b: Builder, indices: Operand, updates: Operand, shape: tuple[int, ...]) -> Wire:
    return b.node("ScatterND", _zeros(b, b.ints(shape), updates.dtype), places(b, indices), updates, reduction="add")


@EMITTERS.row("tensor_scatter_nd_update")
def tensor_scatter_nd_update(b: Builder, params: Operand, indices: Operand, updates: Operand) -> Wire:
    return b.node("ScatterND", params, places(b, indices), updates)


@EMITTERS.row("tensor_scatter_nd_add")
def tensor_scatter_nd_add(b: Builder, params: Operand, indices: Operand, updates: Operand) -> Wire:
    return b.node("ScatterND", params, places(b, indices), updates, reduction="add")


@EMITTERS.row("unsorted_segment_sum")
def unsorted_segment_sum(b: Builder, data: Operand, segment_ids: Operand, num_segments: int, axis: int) -> Wire:
    """The ids' dims, moved to the front, name rows of the result, whose other dims follow in their order."""
    dim = axis_of(axis, data.rank)
    front = [*range(dim, dim + segment_ids.rank), *range(dim), *range(dim + segment_ids.rank, data.rank)]
    others = [data.size(d) for d in front[segment_ids.rank :]]
    zeros = _zeros(b, b.ints([num_segments, *others]), data.dtype)
    rows = b.unsqueeze(places(b, segment_ids), segment_ids.rank)
    sums = b.node("ScatterND", zeros, rows, b.transpose(data, front), reduction="add")
    return b.transpose(sums, [*range(1, dim + 1), 0, *range(dim + 1, len(others) + 1)])


@EMITTERS.row("unsorted_batch_segment_sum")
def unsorted_batch_segment_sum(b: Builder, data: Operand, segment_ids: Operand, num_segments: int) -> Wire:
    """The ids, made as wide as the data they sum, name places along their last dim."""
    dim = segment_ids.rank - 1
    shape = [*data.sizes(range(dim)), num_segments, *data.sizes(range(dim + 1, data.rank))]
    ids = b.reshape(places(b, segment_ids), [*segment_ids.sizes(), *[1] * (data.rank - segment_ids.rank)])
    wide = b.node("Expand", ids, b.shape(data))
    return b.node("ScatterElements", _zeros(b, b.ints(shape), data.dtype), wide, data, axis=dim, reduction="add")
