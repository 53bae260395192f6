"""Non-local attention: every pixel of a map sees every other."""

from __future__ import annotations

from typing import Any

import torch

import oneflow.nn as nn
from flowvision.layers.helpers import make_divisible
from oneflow import Tensor

__all__ = ["NonLocalAttn", "make_divisible"]


class NonLocalAttn(nn.Module):
    """Attention over pixels in ``rd_ratio`` of the channels, its result normalised and added to the input."""

    def __init__(
        self,
        in_channels: int,
        use_scale: bool = True,
        rd_ratio: float = 1 / 8,
        rd_channels: int | None = None,
        rd_divisor: int = 8,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        reduced = rd_channels or make_divisible(in_channels * rd_ratio, rd_divisor)
        self.scale = in_channels**-0.5 if use_scale else 1.0
        self.t, self.p, self.g = (nn.Conv2d(in_channels, reduced, 1) for _ in range(3))
        self.z = nn.Conv2d(reduced, in_channels, 1)
        self.norm = nn.BatchNorm2d(in_channels)
        nn.init.zeros_(self.norm.weight)
        for conv in (self.t, self.p, self.g, self.z):
            nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        queries, keys, values = (conv(x).flatten(2) for conv in (self.t, self.p, self.g))
        weights = (torch.bmm(queries.transpose(1, 2), keys) * self.scale).softmax(2)
        seen = torch.bmm(weights, values.transpose(1, 2)).transpose(1, 2).unflatten(2, x.shape[2:])
        return self.norm(self.z(seen)) + x
