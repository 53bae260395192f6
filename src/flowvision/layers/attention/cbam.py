"""CBAM: attention over channels, then over pixels."""

from __future__ import annotations

from collections.abc import Callable

import torch

import oneflow.nn as nn
from flowvision.layers.helpers import make_divisible
from oneflow import Tensor

Make = Callable[[], nn.Module]


class ChannelAttn(nn.Module):
    """Channels weighed by one small network over their means and their maxima."""

    def __init__(
        self,
        channels: int,
        rd_ratio: float = 1.0 / 16,
        rd_channels: int | None = None,
        rd_divisor: int = 1,
        act_layer: Make = nn.ReLU,
        gate_layer: Make = nn.Sigmoid,
        mlp_bias: bool = False,
    ) -> None:
        super().__init__()
        reduced = rd_channels or make_divisible(channels * rd_ratio, rd_divisor, round_limit=0.0)
        self.fc1 = nn.Conv2d(channels, reduced, 1, bias=mlp_bias)
        self.act = act_layer()
        self.fc2 = nn.Conv2d(reduced, channels, 1, bias=mlp_bias)
        self.gate = gate_layer()

    def forward(self, x: Tensor) -> Tensor:
        means = self.fc2(self.act(self.fc1(x.mean((2, 3), keepdim=True))))
        maxima = self.fc2(self.act(self.fc1(x.amax((2, 3), keepdim=True))))
        return x * self.gate(means + maxima)


class SpatialAttn(nn.Module):
    """Pixels weighed by a convolution over the mean and the maximum of their channels."""

    def __init__(self, kernel_size: int = 7, gate_layer: Make = nn.Sigmoid) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(2, 1, kernel_size, padding=kernel_size // 2, bias=False), nn.BatchNorm2d(1))
        self.gate = gate_layer()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(self.conv(torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1)))


class CbamModule(nn.Module):
    def __init__(
        self,
        channels: int,
        rd_ratio: float = 1.0 / 16,
        rd_channels: int | None = None,
        rd_divisor: int = 1,
        spatial_kernel_size: int = 7,
        act_layer: Make = nn.ReLU,
        gate_layer: Make = nn.Sigmoid,
        mlp_bias: bool = False,
    ) -> None:
        super().__init__()
        self.channel = ChannelAttn(channels, rd_ratio, rd_channels, rd_divisor, act_layer, gate_layer, mlp_bias)
        self.spatial = SpatialAttn(spatial_kernel_size, gate_layer)

    def forward(self, x: Tensor) -> Tensor:
        return self.spatial(self.channel(x))
