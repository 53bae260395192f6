"""Gated channel transformation: channels compete by their norms."""

from __future__ import annotations

import torch

import oneflow.nn as nn
from oneflow import Tensor
from oneflow.engine.core.errors import ArgumentError


class GCTModule(nn.Module):
    """Three numbers for each channel; ``mode`` is the norm, "l2" or "l1", and ``after_relu`` says that values are not
    negative."""

    def __init__(self, channels: int, epsilon: float = 1e-05, mode: str = "l2", after_relu: bool = False) -> None:
        super().__init__()
        if mode not in ("l1", "l2"):
            raise ArgumentError(f"mode is 'l1' or 'l2', got {mode!r}")
        self.alpha = nn.Parameter(torch.ones(1, channels, 1, 1))
        self.gamma = nn.Parameter(torch.zeros(1, channels, 1, 1))
        self.beta = nn.Parameter(torch.zeros(1, channels, 1, 1))
        self.epsilon, self.mode, self.after_relu = epsilon, mode, after_relu

    def forward(self, x: Tensor) -> Tensor:
        if self.mode == "l2":
            size = (x.square().sum((2, 3), keepdim=True) + self.epsilon).sqrt() * self.alpha
            scale = self.gamma / (size.square().mean(1, keepdim=True) + self.epsilon).sqrt()
        else:
            size = (x if self.after_relu else x.abs()).sum((2, 3), keepdim=True) * self.alpha
            scale = self.gamma / (size.abs().mean(1, keepdim=True) + self.epsilon)
        return x * (1 + torch.tanh(size * scale + self.beta))
