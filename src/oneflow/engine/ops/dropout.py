"""Dropout. The mask is a function of (seed, step, index), never of who computes it."""

from __future__ import annotations

import torch
from torch import Tensor

from oneflow.engine.ops.elementwise import require_blob, require_float
from oneflow.engine.ops.kernels import counter_random
from oneflow.engine.ops.row import Family, require

ROWS = Family()


def _kept(x: Tensor, rate: float, seed: int, step: Tensor) -> Tensor:
    require(0.0 <= rate < 1.0, f"the dropout rate lies in [0, 1), got {rate}")
    return counter_random.bernoulli(x.shape, 1.0 - rate, seed, step)


@ROWS.op("nn.dropout", random=True, precision="gray")
def dropout(x: Tensor, *, rate: float, seed: int, step: Tensor) -> Tensor:
    """x with a part ``rate`` of its elements 0 and the others divided by 1 - rate."""
    # A scaled mask in x's dtype costs one multiplication in the forward and one in the backward.
    scale = _kept(require_float(x), rate, seed, step).to(x.dtype) * (1.0 / (1.0 - rate))
    return x * scale


@ROWS.op("nn.random_mask_like", random=True, precision="clear")
def random_mask_like(like: Tensor, *, rate: float, seed: int, step: Tensor) -> Tensor:
    """Int8 of the shape of ``like``: 0 with probability ``rate``, else 1."""
    return _kept(require_blob(like), rate, seed, step).to(torch.int8)
