"""What is made of many losses."""

from __future__ import annotations

from oneflow import Tensor
from oneflow.engine.core.errors import ArgumentError


def reduced(loss: Tensor, reduction: str) -> Tensor:
    if reduction not in ("none", "mean", "sum"):
        raise ArgumentError(f"reduction is 'none', 'mean' or 'sum', got {reduction!r}")
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()
