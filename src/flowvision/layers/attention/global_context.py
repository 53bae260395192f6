"""Global context: one picture-wide vector, found by attention, added to or multiplied with a map."""

from __future__ import annotations

from collections.abc import Callable

import torch

import oneflow.nn as nn
from flowvision.layers.blocks.mlp import ConvMlp
from flowvision.layers.helpers import make_divisible
from flowvision.layers.regularization.norm import LayerNorm2d
from oneflow import Tensor

Make = Callable[[], nn.Module]


class GlobalContext(nn.Module):
    """``use_attn`` weighs pixels before the sum, else it is their mean; ``fuse_scale`` and ``fuse_add`` say what is
    done with it."""

    def __init__(
        self,
        channels: int,
        use_attn: bool = True,
        fuse_add: bool = False,
        fuse_scale: bool = True,
        init_last_zero: bool = False,
        rd_ratio: float = 1.0 / 8,
        rd_channels: int | None = None,
        rd_divisor: int = 1,
        act_layer: Make = nn.ReLU,
        gate_layer: Make = nn.Sigmoid,
    ) -> None:
        super().__init__()
        reduced = rd_channels or make_divisible(channels * rd_ratio, rd_divisor, round_limit=0.0)
        self.conv_attn = nn.Conv2d(channels, 1, 1) if use_attn else None
        self.mlp_add = ConvMlp(channels, reduced, act_layer=act_layer, norm_layer=LayerNorm2d) if fuse_add else None
        self.mlp_scale = ConvMlp(channels, reduced, act_layer=act_layer, norm_layer=LayerNorm2d) if fuse_scale else None
        self.gate = gate_layer()
        if self.conv_attn is not None:
            nn.init.kaiming_normal_(self.conv_attn.weight, mode="fan_in", nonlinearity="relu")
        if self.mlp_add is not None and init_last_zero:
            nn.init.zeros_(self.mlp_add.fc2.weight)

    def forward(self, x: Tensor) -> Tensor:
        if self.conv_attn is None:
            context = x.mean((2, 3), keepdim=True)
        else:
            weights = self.conv_attn(x).flatten(2).softmax(-1)
            context = torch.matmul(x.flatten(2), weights.transpose(1, 2)).unsqueeze(-1)
        if self.mlp_scale is not None:
            x = x * self.gate(self.mlp_scale(context))
        return x if self.mlp_add is None else x + self.mlp_add(context)
