"""Samples of ``oneflow.engine.ops.scatter``."""

from __future__ import annotations

import numpy as np
import torch
from sample import Sample, ints, rand

from oneflow import array

PLACES = np.array([[0, 1], [2, 3], [0, 1]], np.int32)
OTHER_PLACES = np.array([[0], [3]], np.int64)
IDS = np.array([2, 0, 2, 1], np.int32)
BATCH_IDS = np.array([[0, 2, 0], [1, 1, 1]], np.int32)


def _onto(base, indices, updates, replace=False):
    """Each update put at its place, one after another."""
    out = list(base.reshape(-1, *base.shape[indices.shape[-1] :]))
    extents = base.shape[: indices.shape[-1]]
    for place, update in zip(indices.tolist(), updates, strict=True):
        flat = int(np.ravel_multi_index(place, extents))
        out[flat] = update if replace else out[flat] + update
    return torch.stack(out).reshape(base.shape)


def _sums(rows, ids, count):
    return torch.stack(
        [sum((r for r, i in zip(rows, ids.tolist(), strict=True) if i == k), 0 * rows[0]) for k in range(count)]
    )


SAMPLES = [
    Sample(
        "scatter_nd",
        lambda i, u: array.scatter_nd(i, u, [3, 4]),
        (PLACES, rand(3)),
        lambda i, u: _onto(torch.zeros(3, 4), i, u),
    ),
    Sample(
        "scatter_nd",
        lambda i, u: array.scatter_nd(i, u, (4, 3)),
        (OTHER_PLACES, ints(2, 3, dtype=np.int64)),
        lambda i, u: _onto(torch.zeros(4, 3, dtype=torch.int64), i, u),
        gradient=False,
    ),
    Sample(
        "tensor_scatter_nd_update",
        lambda x, i, u: array.tensor_scatter_nd_update(x, i, u),
        (rand(4, 3), OTHER_PLACES, rand(2, 3, seed=1)),
        lambda x, i, u: _onto(x, i, u, replace=True),
    ),
    Sample(
        "tensor_scatter_nd_add",
        lambda x, i, u: array.tensor_scatter_nd_add(x, i, u),
        (rand(3, 4, 2), PLACES, rand(3, 2, seed=1)),
        lambda x, i, u: _onto(x, i, u),
    ),
    Sample(
        "unsorted_segment_sum",
        lambda x, i: array.unsorted_segment_sum(x, i, 4),
        (rand(4, 3), IDS),
        lambda x, i: _sums(x, i, 4),
    ),
    Sample(
        "unsorted_segment_sum",
        lambda x, i: array.unsorted_segment_sum(x, i, num_segments=3, axis=1),
        (rand(2, 4, 3), IDS),
        lambda x, i: torch.stack([_sums(row, i, 3) for row in x]),
    ),
    Sample(
        "unsorted_segment_sum",
        lambda x, i: array.unsorted_segment_sum(x, i, 3),
        (rand(2, 3, 5), BATCH_IDS),
        lambda x, i: _sums(x.reshape(6, 5), i.reshape(6), 3),
    ),
    Sample(
        "unsorted_segment_sum",
        lambda x, i, y: array.unsorted_segment_sum_like(x, i, y),
        (rand(4, 3), IDS, rand(5, 3)),
        lambda x, i, y: _sums(x, i, 5),
    ),
    Sample(
        "unsorted_batch_segment_sum",
        lambda x, i: array.unsorted_batch_segment_sum(x, i, 3),
        (rand(2, 3, 5), BATCH_IDS),
        lambda x, i: torch.stack([_sums(x[b], i[b], 3) for b in range(2)]),
    ),
    Sample(
        "unsorted_batch_segment_sum",
        lambda x, i: array.unsorted_batch_segment_sum(x, i, 3),
        (rand(2, 3), BATCH_IDS),
        lambda x, i: torch.stack([_sums(x[b], i[b], 3) for b in range(2)]),
    ),
]
