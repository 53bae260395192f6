"""Matrix products, and masks of matrices."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from oneflow.engine.ops.elementwise import number_like, operands, require_blob, require_float
from oneflow.engine.ops.row import Family, require

ROWS = Family()


@ROWS.op("matmul", precision="white")
def matmul(a: Tensor, b: Tensor, transpose_a: bool = False, transpose_b: bool = False, alpha: float = 1.0) -> Tensor:
    """alpha * a @ b over the last two dimensions.

    Either both have the same rank and the same leading dimensions, or ``b`` is one matrix for all of ``a``.
    """
    a, b = operands(require_float(a), require_float(b))
    require(a.dim() >= 2 and b.dim() >= 2, f"matmul takes blobs of rank 2 or more, got ranks {a.dim()} and {b.dim()}")
    require(b.dim() in (2, a.dim()), f"b has the rank of a or rank 2; a has rank {a.dim()}, b has rank {b.dim()}")
    require(
        b.dim() == 2 or a.shape[:-2] == b.shape[:-2],
        f"leading dimensions differ: {tuple(a.shape)} and {tuple(b.shape)}",
    )
    a = a.transpose(-1, -2) if transpose_a else a
    b = b.transpose(-1, -2) if transpose_b else b
    require(
        a.shape[-1] == b.shape[-2],
        f"a has {a.shape[-1]} columns and b has {b.shape[-2]} rows (after transposition); they must be equal",
    )
    out = _product(a, b)
    return out if alpha == 1 else out * number_like(alpha, out.dtype)


def _product(a: Tensor, b: Tensor) -> Tensor:
    # The direct calls keep the graph free of the expand and reshape nodes that torch.matmul puts around them.
    if a.dim() == 2:
        return torch.mm(a, b)
    return torch.bmm(a, b) if a.dim() == b.dim() == 3 else torch.matmul(a, b)


def _lower(x: Tensor, diagonal: Any, fill_value: Any) -> Tensor:
    require(require_blob(x).dim() >= 2, f"expected a blob of rank 2 or more, got rank {x.dim()}")
    require(type(diagonal) is int, f"diagonal is an int, got {diagonal!r}")
    fill = number_like(fill_value, x.dtype)
    if fill == 0:
        return torch.tril(x, diagonal)
    above = torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).triu(diagonal + 1)
    return x.masked_fill(above, fill)


@ROWS.op("math.tril")
def tril(x: Tensor, diagonal: int, fill_value: float) -> Tensor:
    """Each matrix up to and with its ``diagonal``; ``fill_value`` above."""
    return _lower(x, diagonal, fill_value)


@ROWS.op("math.fused_scale_tril", precision="gray")
def fused_scale_tril(x: Tensor, diagonal: int, fill_value: float, scale: float) -> Tensor:
    """``tril`` of x * scale; the filling is not scaled."""
    return _lower(x * number_like(scale, require_blob(x).dtype), diagonal, fill_value)
