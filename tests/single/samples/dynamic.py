"""Samples of ops/dynamic.py: the whole blobs, zeros behind the rows that count."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sample import Sample, ints, rand

from oneflow.engine.ir.blob import emit, emit_many
from oneflow.engine.ops import dynamic as rows

MASK = np.array([[0, 3, 0, 1], [0, 0, 0, 0], [5, 0, 0, 2]], np.int32)
IDS = np.array([7, 3, 7, 9, 3, 3, 1, 9], np.int32)


def padded(rows: np.ndarray, size: int) -> torch.Tensor:
    out = np.zeros((size, *rows.shape[1:]), rows.dtype)
    out[: len(rows)] = rows
    return torch.from_numpy(out)


def places(x: torch.Tensor) -> tuple[Any, ...]:
    found = np.argwhere(x.numpy()).astype(np.int32)
    return padded(found, x.numel()), torch.tensor([len(found)], dtype=torch.int32)


def unique(x: torch.Tensor) -> tuple[Any, ...]:
    values = list(dict.fromkeys(x.tolist()))
    index = [values.index(v) for v in x.tolist()]
    counts = [x.tolist().count(v) for v in values]
    n = x.numel()
    made = (
        padded(np.array(values, np.int32), n),
        np.array(index, np.int32),
        padded(np.array(counts, np.int32), n),
        np.array([len(values)], np.int32),
    )
    return tuple(map(torch.as_tensor, made))


def summed(indices: torch.Tensor, values: torch.Tensor) -> tuple[Any, ...]:
    keys = list(dict.fromkeys(indices.tolist()))
    sums = [sum(row for key, row in zip(indices.tolist(), values) if key == wanted) for wanted in keys]
    rest = [torch.zeros_like(values[0])] * (len(values) - len(keys))
    return padded(np.array(keys, np.int32), len(values)), torch.stack([*sums, *rest]), torch.tensor([len(keys)])


def encoded(table: torch.Tensor, ids: torch.Tensor) -> tuple[Any, ...]:
    numbers = {key: number for key, number in table.reshape(-1, 2).tolist() if key}
    out = [0 if key == 0 else numbers.setdefault(key, len(numbers) + 1) for key in ids.reshape(-1).tolist()]
    now = padded(np.array(list(numbers.items()), np.int64).reshape(-1, 2), len(table) // 2)
    return torch.tensor(out).reshape(ids.shape), now.reshape(-1), torch.tensor([len(numbers)])


SAMPLES = [
    Sample("argwhere", lambda x: emit_many(rows.argwhere, x, dtype=torch.int32), (MASK,), places, gradient=False),
    Sample(
        "argwhere",
        lambda x: emit_many(rows.argwhere, x, dtype=torch.int32),
        (ints(2, 3, 4, high=2),),
        places,
        gradient=False,
    ),
    Sample(
        "dynamic_filled",
        lambda x, count: emit(rows.filled, x, count, value=2.5),
        (rand(8, 3), np.array([5], np.int32)),
        lambda x, count: torch.cat([x[:5], torch.full((3, 3), 2.5)]),
    ),
    Sample(
        "experimental.unique_with_counts",
        lambda x: emit_many(rows.unique_with_counts, x, dtype=torch.int32),
        (IDS,),
        unique,
        gradient=False,
    ),
    Sample(
        "experimental.indexed_slices_reduce_sum",
        lambda i, v: emit_many(rows.indexed_slices_reduce_sum, i, v),
        (IDS, rand(8, 3)),
        summed,
        gradient=False,
    ),
    Sample(
        "categorical_ordinal_encode",
        lambda t, i: emit_many(rows.categorical_ordinal_encode, t, i),
        (np.zeros(20, np.int64), np.array([[7, 0, 2], [1, 7, 2], [0, 1, 7]], np.int64)),
        encoded,
        gradient=False,
    ),
    Sample(
        "categorical_ordinal_encode",
        lambda t, i: emit_many(rows.categorical_ordinal_encode, t, i),
        (np.array([7, 1, 2, 2, 0, 0, 0, 0], np.int64), np.array([2, 5, 0, 7, 9, 5], np.int64)),
        encoded,
        gradient=False,
    ),
]
