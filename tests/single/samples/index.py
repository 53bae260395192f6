"""Samples of ``oneflow.engine.ops.index``."""

from __future__ import annotations

import numpy as np
import torch
from sample import Sample, ints, rand

from oneflow import array
from oneflow.engine.core import dtype as dtypes

ROWS_AND_COLUMNS = np.array([[[0, 3], [2, 1]], [[2, 1], [1, 0]]], np.int32)
LABELS = ints(2, 3, high=4)


def _updated(x, update, index):
    out = x.clone()
    out[index] = update
    return out


SAMPLES = [
    Sample("slice", lambda x: array.slice(x, [None, 1], [None, 2]), (rand(3, 4),), lambda x: x[:, 1:3]),
    Sample("slice", lambda x: array.slice(x, (1, -2, 0), (2, -1, 1)), (rand(3, 4, 2),), lambda x: x[1:3, 2:, :1]),
    Sample(
        "slice_v2", lambda x: array.slice_v2(x, [(None, None, None), (1, 4, 2)]), (rand(3, 5),), lambda x: x[:, 1:4:2]
    ),
    Sample("slice_v2", lambda x: array.slice_v2(x, [(-2, None, None)]), (rand(3, 5),), lambda x: x[1:]),
    Sample("slice_v2", lambda x: array.slice_v2(x, [[0, 2], [4, None, -3]]), (rand(3, 5),), lambda x: x[:2, [4, 1]]),
    Sample(
        "slice_update",
        lambda x, u: array.slice_update(x, u, [(1, 3, 1), (0, 5, 2)]),
        (rand(4, 5), rand(2, 3, seed=1)),
        lambda x, u: _updated(x, u, (slice(1, 3), slice(0, 5, 2))),
    ),
    Sample(
        "slice_update",
        lambda x, u: array.slice_update(x, u, [(None, None, -1)]),
        (rand(3, 2), rand(3, 2, seed=1)),
        lambda x, u: u[[2, 1, 0]] + 0 * x,
    ),
    Sample("gather", lambda x, i: array.gather(x, i), (rand(5, 4), ints(2, 3)), lambda x, i: x[i.long()]),
    Sample(
        "gather",
        lambda x, i: array.gather(x, i, axis=1),
        (rand(2, 5, 3), ints(4, dtype=np.int64)),
        lambda x, i: x[:, i],
    ),
    Sample(
        "gather",
        lambda x, i: array.gather(x, i, axis=-1),
        (rand(2, 5), ints(2, 2, dtype=np.int8)),
        lambda x, i: x[:, i.long()],
    ),
    Sample(
        "gather",
        lambda x, i: array.gather(x, i, batch_dims=1),
        (rand(2, 5, 3), ints(2, 4)),
        lambda x, i: torch.stack([x[b][i[b].long()] for b in range(2)]),
    ),
    Sample(
        "gather",
        lambda x, i: array.gather(x, i, axis=2, batch_dims=2),
        (rand(2, 2, 5), ints(2, 2, 3, 2)),
        lambda x, i: torch.stack([torch.stack([x[a, b][i[a, b].long()] for b in range(2)]) for a in range(2)]),
    ),
    Sample(
        "gather_nd",
        lambda x, i: array.gather_nd(x, i),
        (rand(3, 4, 2), ROWS_AND_COLUMNS),
        lambda x, i: torch.stack([torch.stack([x[r, c] for r, c in pair.tolist()]) for pair in i]),
    ),
    Sample(
        "gather_nd",
        lambda x, i: array.gather_nd(x, i),
        (rand(3, 4), ints(5, 1, high=3)),
        lambda x, i: x[i[:, 0].long()],
    ),
    Sample(
        "dim_gather",
        lambda x, i: array.dim_gather(x, 1, i),
        (rand(2, 5), ints(2, 3)),
        lambda x, i: torch.stack([x[r][i[r].long()] for r in range(2)]),
    ),
    Sample(
        "dim_gather",
        lambda x, i: array.dim_gather(x, 0, i),
        (rand(5, 2), ints(7, 2)),
        lambda x, i: torch.stack([x[:, c][i[:, c].long()] for c in range(2)], 1),
    ),
    Sample(
        "one_hot",
        lambda i: array.one_hot(i, depth=4),
        (LABELS,),
        lambda i: np.eye(4, dtype=np.float32)[i],
        gradient=False,
    ),
    Sample(
        "one_hot",
        lambda i: array.one_hot(i, 4, on_value=0.9001, off_value=0.0001, dtype=dtypes.float64),
        (LABELS,),
        lambda i: np.eye(4)[i] * 0.9 + 0.0001,
        gradient=False,
    ),
    Sample(
        "one_hot",
        lambda i: array.one_hot(i, 5, 7, -1, axis=1, dtype=dtypes.int32),
        (LABELS.astype(np.int64),),
        lambda i: (np.eye(5, dtype=np.int32)[i] * 8 - 1).transpose(0, 2, 1),
        gradient=False,
    ),
    Sample(
        "one_hot",
        lambda i: array.one_hot(i, 2, axis=0),
        (np.array([1, -1, 5], np.int32),),
        lambda i: np.array([[0, 0, 0], [1, 0, 0]], np.float32),
        gradient=False,
    ),
]
