"""Coordinate attention: rows and columns of a map are weighed one by one."""

from __future__ import annotations

from collections.abc import Callable

import torch

import oneflow.nn as nn
from flowvision.layers.activation import hard_swish
from flowvision.layers.helpers import make_divisible
from oneflow import Tensor

Make = Callable[[], nn.Module]


class CoordAttModule(nn.Module):
    """Means along rows and along columns share one narrow convolution; each gives the weights of its direction."""

    def __init__(
        self,
        channels: int,
        out_channels: int | None = None,
        rd_ratio: float = 1.0 / 16,
        rd_channels: int | None = None,
        rd_divisor: int = 1,
        act_layer: Make = hard_swish,
        gate_layer: Make = nn.Sigmoid,
        mlp_bias: bool = False,
    ) -> None:
        super().__init__()
        reduced = rd_channels or make_divisible(channels * rd_ratio, rd_divisor, round_limit=0.0)
        outputs = out_channels or channels
        self.conv1 = nn.Conv2d(channels, reduced, 1, bias=mlp_bias)
        self.bn1 = nn.BatchNorm2d(reduced)
        self.act = act_layer()
        self.conv_h = nn.Conv2d(reduced, outputs, 1, bias=mlp_bias)
        self.conv_w = nn.Conv2d(reduced, outputs, 1, bias=mlp_bias)
        self.gate = gate_layer()

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[2:]
        means = torch.cat([x.mean(3, keepdim=True), x.mean(2, keepdim=True).transpose(2, 3)], 2)
        rows, columns = self.act(self.bn1(self.conv1(means))).split([height, width], 2)
        return x * self.gate(self.conv_h(rows)) * self.gate(self.conv_w(columns.transpose(2, 3)))
