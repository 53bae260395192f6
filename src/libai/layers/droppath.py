"""Drop path: whole samples of a branch are left out."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from oneflow import nn


def drop_path(x: Any, drop_prob: float = 0.5, training: bool = False, scale_by_keep: bool = True) -> Any:
    """Zeroes samples (dim 0) with probability ``drop_prob``; ``scale_by_keep`` divides the others by what is kept.
    Without ``training`` it is ``x``."""
    if drop_prob == 0.0 or not training:
        return x
    rows = torch.ones_like(x[(slice(None), *(slice(1) for _ in range(x.ndim - 1)))])
    kept = F.dropout(rows, drop_prob, training=True)
    return x * (kept if scale_by_keep else kept * (1 - drop_prob))


class DropPath(nn.Module):
    """:func:`drop_path` while it trains."""

    def __init__(self, drop_prob: float = 0.0, scale_by_keep: bool = True) -> None:
        super().__init__()
        self.drop_prob = drop_prob or 0.0
        self.scale_by_keep = scale_by_keep

    def forward(self, x: Any) -> Any:
        return drop_path(x, self.drop_prob, self.training, self.scale_by_keep)

    def extra_repr(self) -> str:
        return f"drop_prob={self.drop_prob}"
