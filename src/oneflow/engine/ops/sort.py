"""Order along an axis. Sorting is stable, so equal elements give one result on every device."""

from __future__ import annotations

import torch
from torch import Tensor

from oneflow.engine.ops.array import axis_of
from oneflow.engine.ops.row import Family

ROWS = Family()


@ROWS.op("sort")
def sort(x: Tensor, axis: int, descending: bool) -> Tensor:
    return torch.sort(x, dim=axis_of(axis, x.dim()), descending=descending, stable=True).values


@ROWS.op("argsort")
def argsort(x: Tensor, axis: int, descending: bool) -> Tensor:
    """The positions that would sort x: int32."""
    return torch.sort(x, dim=axis_of(axis, x.dim()), descending=descending, stable=True).indices.to(torch.int32)
