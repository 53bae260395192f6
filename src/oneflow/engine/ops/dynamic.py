"""Ops whose results have as many rows as the data says: in blobs as large as they can become, zeros behind, with the
number of rows beside.

Shapes stay static this way, so a compiled program runs them as any other op; ``ir/blob.py`` cuts what a job returns.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from oneflow.engine.ops.row import Family, require

ROWS = Family()


def _places(n: int, like: Tensor) -> Tensor:
    return torch.arange(n, device=like.device)


@ROWS.op("dynamic_filled")
def filled(rows: Tensor, count: Tensor, *, value: float) -> Tensor:
    """The first ``count`` rows, ``value`` behind them."""
    is_row = (_places(rows.shape[0], rows) < count).reshape([-1] + [1] * (rows.dim() - 1))
    return torch.where(is_row, rows, torch.full_like(rows, value))


def _kept(rows: Tensor, count: Tensor) -> Tensor:
    """Zeros behind the first ``count`` rows."""
    return filled(rows, count, value=0)


@ROWS.op("argwhere")
def argwhere(x: Tensor, *, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The places (elements, rank) of what is not 0, in row-major order, and how many they are, int32 (1,)."""
    require(x.dim() >= 1, "argwhere takes a blob of rank 1 or more")
    hit = x.reshape(-1) != 0
    count = hit.sum().reshape(1)
    rest = torch.sort(hit.to(torch.int8), descending=True, stable=True).indices
    coordinates = []
    for size in reversed(x.shape):
        coordinates.append(rest % size)
        rest = torch.div(rest, size, rounding_mode="floor")
    places = torch.stack(coordinates[::-1], 1)
    return _kept(places, count).to(dtype), count.to(torch.int32)


class _Groups(NamedTuple):
    """Equal elements of a vector: the place of each first one in order of appearance (then ``n``), the number of its
    group for every element (from 1; 0 for elements that do not count), and how many groups there are."""

    first: Tensor
    number: Tensor
    total: Tensor


def _groups(x: Tensor, counts: Tensor) -> _Groups:
    """The groups of equal elements among those that ``counts`` names."""
    n = x.shape[0]
    line, order = torch.sort(x, stable=True)
    back = torch.sort(order).indices
    begins = torch.cat([torch.ones_like(line[:1], dtype=torch.bool), line[1:] != line[:-1]]) & counts[order]
    first = torch.sort(torch.where(begins, order, n)).values
    numbers = torch.cumsum(
        begins[back].to(torch.int64), 0
    )  # in the order of x: the number of a group where it first appears
    starts = torch.sort(torch.where(begins, _places(n, x), n)).values
    mine = starts[(torch.cumsum(begins.to(torch.int64), 0) - 1).clamp(min=0)].clamp(
        max=n - 1
    )  # where each element's group starts on the line
    number = numbers[order[mine]][back]
    return _Groups(first, torch.where(counts, number, torch.zeros_like(number)), begins.sum().reshape(1))


@ROWS.op("experimental.unique_with_counts")
def unique_with_counts(x: Tensor, *, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The values of a vector in order of appearance, the place of each element among them, how often each comes, and
    how many there are."""
    require(x.dim() == 1, f"unique_with_counts takes a blob of rank 1, got shape {tuple(x.shape)}")
    groups = _groups(x, torch.ones_like(x, dtype=torch.bool))
    values = _kept(x[groups.first.clamp(max=x.shape[0] - 1)], groups.total)
    places = groups.number - 1
    counts = torch.zeros_like(places).scatter_add(0, places, torch.ones_like(places))
    return values, places.to(dtype), counts.to(dtype), groups.total.to(dtype)


@ROWS.op("experimental.indexed_slices_reduce_sum")
def indexed_slices_reduce_sum(indices: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The different indices in order of appearance, the sum of the rows of ``values`` of each, and how many there are,
    int64."""
    flat = indices.reshape(-1)
    fits = not indices.dtype.is_floating_point and values.shape[: indices.dim()] == indices.shape and indices.dim() > 0
    require(
        fits,
        f"indices are integers in the shape of values' first axes, got {tuple(indices.shape)} for "
        f"{tuple(values.shape)}",
    )
    groups = _groups(flat, torch.ones_like(flat, dtype=torch.bool))
    rows = values.reshape(flat.shape[0], *values.shape[indices.dim() :])
    sums = torch.zeros_like(rows).index_add(0, groups.number - 1, rows)
    return _kept(flat[groups.first.clamp(max=flat.shape[0] - 1)], groups.total), sums, groups.total


@ROWS.op("categorical_ordinal_encode")
def categorical_ordinal_encode(table: Tensor, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Each id as a number, 0 for 0, the others from 1 in the order in which they first appear; the table and its size
    after that.

    The table (2 x capacity,) holds id and number in turns, in the order of the numbers. More ids than it has room for
    end the run.
    """
    require(
        table.dim() == 1 and table.shape[0] % 2 == 0 and table.dtype == ids.dtype,
        "the table is (2 x capacity,) in the dtype of the ids",
    )
    known, flat = table.reshape(-1, 2)[:, 0], ids.reshape(-1)
    capacity = known.shape[0]
    every = torch.cat([known, flat])  # what is known comes first and so keeps its number
    groups = _groups(every, every != 0)
    keys = _kept(every[groups.first.clamp(max=every.shape[0] - 1)], groups.total)[:capacity]
    numbers = _kept(_places(capacity, table) + 1, groups.total)
    room = torch.arange(capacity + 1, device=table.device)
    encoded = room[groups.number[capacity:]]  # a number beyond the capacity is an index out of range
    return (
        encoded.reshape(ids.shape).to(ids.dtype),
        torch.stack([keys, numbers.to(keys.dtype)], 1).reshape(-1),
        groups.total.to(ids.dtype),
    )
