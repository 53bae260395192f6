"""Writing and summing into places that index tensors name."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from oneflow.engine.ops.array import axis_of, same_dtype
from oneflow.engine.ops.index import as_index, positions
from oneflow.engine.ops.row import Family, require

ROWS = Family()


def _put(target: Tensor, indices: Tensor, updates: Tensor, accumulate: bool) -> Tensor:
    same_dtype([target, updates])
    where = positions(indices, target.dim())
    wanted = (*indices.shape[:-1], *target.shape[len(where) :])
    require(
        tuple(updates.shape) == wanted, f"updates have the shape {wanted} for these indices, got {tuple(updates.shape)}"
    )
    return torch.index_put(target, where, updates, accumulate=accumulate)


@ROWS.op("scatter_nd")
def scatter_nd(indices: Tensor, updates: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Zeros with ``updates`` added at ``indices``; what meets in one place is summed."""
    return _put(updates.new_zeros(shape), indices, updates, accumulate=True)


@ROWS.op("tensor_scatter_nd_update")
def tensor_scatter_nd_update(params: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """``params`` with ``updates`` in place of what was at ``indices``."""
    return _put(params, indices, updates, accumulate=False)


@ROWS.op("tensor_scatter_nd_add")
def tensor_scatter_nd_add(params: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """``params`` with ``updates`` added at ``indices``."""
    return _put(params, indices, updates, accumulate=True)


@ROWS.op("unsorted_segment_sum")
def unsorted_segment_sum(data: Tensor, segment_ids: Tensor, num_segments: int, axis: int) -> Tensor:
    """Sums of the slices of ``data`` that have the same id; the ids' axes stand at ``axis`` and become one of
    ``num_segments``."""
    axis = axis_of(axis, data.dim())
    after = axis + segment_ids.dim()
    require(
        data.shape[axis:after] == segment_ids.shape, f"the shape of segment_ids is that of data from axis {axis} on"
    )
    before, rest = data.shape[:axis], data.shape[after:]
    flat = data.reshape(*before, segment_ids.numel(), *rest)
    zeros = data.new_zeros((*before, num_segments, *rest))
    return zeros.index_add(axis, as_index(segment_ids).reshape(-1), flat)


@ROWS.op("unsorted_batch_segment_sum")
def unsorted_batch_segment_sum(data: Tensor, segment_ids: Tensor, num_segments: int) -> Tensor:
    """Segment sums along the ids' last axis, for each position of the axes before it on its own."""
    axis = segment_ids.dim() - 1
    require(data.shape[: axis + 1] == segment_ids.shape, "data begins with the shape of segment_ids")
    batch, rest = math.prod(data.shape[:axis]), data.shape[axis + 1 :]
    width = math.prod(rest)
    ids = as_index(segment_ids).reshape(batch, -1, 1).expand(-1, -1, width)
    zeros = data.new_zeros((batch, num_segments, width))
    return zeros.scatter_add(1, ids, data.reshape(batch, -1, width)).reshape(*data.shape[:axis], num_segments, *rest)
