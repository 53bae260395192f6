"""Tensors made from numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from oneflow.engine.ops.elementwise import number_like
from oneflow.engine.ops.row import Family, require

ROWS = Family()


@ROWS.op("constant", creates=True)
def constant(*, value: float, shape: tuple[int, ...], dtype: torch.dtype, device: Any) -> Tensor:
    return torch.full(shape, number_like(value, dtype), dtype=dtype, device=device)


@ROWS.op("constant_like")
def constant_like(like: Tensor, value: float, dtype: torch.dtype) -> Tensor:
    return torch.full_like(like, number_like(value, dtype), dtype=dtype)


@ROWS.op("range", creates=True)
def range_(*, start: float, limit: float, delta: float, dtype: torch.dtype, device: Any) -> Tensor:
    start, limit, delta = (number_like(n, dtype) for n in (start, limit, delta))
    require(
        delta != 0 and (limit - start) / delta > 0,
        f"from {start} to {limit} by {delta} there is nothing; a blob has elements",
    )
    return torch.arange(start, limit, delta, dtype=dtype, device=device)
