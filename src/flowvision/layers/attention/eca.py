"""Efficient channel attention."""

from __future__ import annotations

import math
from collections.abc import Callable

import oneflow.nn as nn
from oneflow import Tensor


class EcaModule(nn.Module):
    """Weighs channels by a convolution over the means of their neighbours; with ``channels`` the kernel follows their
    number."""

    def __init__(
        self,
        channels: int | None = None,
        kernel_size: int = 3,
        gamma: float = 2,
        beta: float = 1,
        gate_layer: Callable[[], nn.Module] = nn.Sigmoid,
    ) -> None:
        super().__init__()
        if channels is not None:
            nearest = int(abs(math.log2(channels) + beta) / gamma)
            kernel_size = max(nearest if nearest % 2 else nearest + 1, 3)
        self.conv = nn.Conv1d(1, 1, kernel_size, padding=(kernel_size - 1) // 2, bias=False)
        self.gate = gate_layer()

    def forward(self, x: Tensor) -> Tensor:
        weights = self.gate(self.conv(x.mean((2, 3)).unsqueeze(1)))
        return x * weights.view(x.shape[0], -1, 1, 1)
