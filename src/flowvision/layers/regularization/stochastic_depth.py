"""Stochastic depth: a residual branch dropped whole, per picture or for the batch."""

from __future__ import annotations

import torch

import oneflow.nn as nn
from oneflow import Tensor
from oneflow.engine.core.errors import ArgumentError


def stochastic_depth(input: Tensor, p: float, mode: str, training: bool = True) -> Tensor:
    """Zeroes ``input`` with probability ``p``, "row" by row or the whole "batch", and divides what stays by ``1 -
    p``."""
    if not 0.0 <= p <= 1.0:
        raise ArgumentError(f"p is a probability between 0 and 1, got {p}")
    if mode not in ("batch", "row"):
        raise ArgumentError(f"mode is 'batch' or 'row', got {mode!r}")
    if not training or p == 0.0:
        return input
    rows = input.shape[0] if mode == "row" else 1
    if p == 1.0:
        return input * 0
    kept = torch.rand(rows, *[1] * (input.dim() - 1), device=input.device) < 1 - p
    return input * (kept.to(input.dtype) / (1 - p))


class StochasticDepth(nn.Module):
    """:func:`stochastic_depth` while it trains."""

    def __init__(self, p: float, mode: str = "row") -> None:
        super().__init__()
        self.p, self.mode = p, mode

    def forward(self, input: Tensor) -> Tensor:
        return stochastic_depth(input, self.p, self.mode, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}, mode={self.mode}"
