"""Squeeze and excitation."""

from __future__ import annotations

from collections.abc import Callable

import oneflow.nn as nn
from oneflow import Tensor


class SEModule(nn.Module):
    """Weighs channels by a small network over their means."""

    def __init__(
        self,
        channels: int,
        reduction: int = 16,
        rd_channels: int | None = None,
        act_layer: Callable[[], nn.Module] = nn.ReLU,
        gate_layer: Callable[[], nn.Module] = nn.Sigmoid,
        mlp_bias: bool = True,
    ) -> None:
        super().__init__()
        reduced = rd_channels or channels // reduction
        self.fc1 = nn.Conv2d(channels, reduced, 1, bias=mlp_bias)
        self.act = act_layer()
        self.fc2 = nn.Conv2d(reduced, channels, 1, bias=mlp_bias)
        self.gate = gate_layer()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(self.fc2(self.act(self.fc1(x.mean((2, 3), keepdim=True)))))
