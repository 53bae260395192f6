"""BAM: channels and dilated neighbourhoods weigh a map together."""

from __future__ import annotations

from collections.abc import Callable

import oneflow.nn as nn
from flowvision.layers.blocks.conv_bn_act import ConvBnAct
from flowvision.layers.helpers import make_divisible
from oneflow import Tensor

Make = Callable[[], nn.Module]


class LinearBnAct(nn.Sequential):
    """A full connection, a norm over the batch, an activation."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        act_layer: Make = nn.ReLU,
        fc: Callable[..., nn.Module] = nn.Linear,
        normalization: Callable[[int], nn.Module] = nn.BatchNorm1d,
        bias: bool = False,
    ) -> None:
        super().__init__(fc(in_features, out_features, bias=bias), normalization(out_features), act_layer())


class BamChannelAttn(nn.Module):
    """A score for each channel, of the channels' means: ``num_layers`` narrow connections, and one that widens again.
    BAMModule gates it."""

    def __init__(
        self,
        channels: int,
        rd_ratio: float = 1.0 / 16,
        rd_channels: int | None = None,
        rd_divisor: int = 1,
        act_layer: Make = nn.ReLU,
        gate_layer: Make = nn.Sigmoid,
        num_layers: int = 2,
        mlp_bias: bool = False,
    ) -> None:
        super().__init__()
        reduced = rd_channels or make_divisible(channels * rd_ratio, rd_divisor, round_limit=0.0)
        widths = [channels] + [reduced] * num_layers
        self.fc_layers = nn.Sequential(
            *(LinearBnAct(into, out, act_layer, bias=mlp_bias) for into, out in zip(widths, widths[1:]))
        )
        self.fc = nn.Linear(widths[-1], channels, bias=mlp_bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.fc_layers(x.mean((2, 3))))[:, :, None, None].expand_as(x)


class BamSpatialAttn(nn.Module):
    """A score for each pixel: a 1x1 convolution that narrows, ``num_layers`` dilated ones, and one to a single channel.
    BAMModule gates it."""

    def __init__(
        self,
        channels: int,
        rd_ratio: float = 1.0 / 16,
        rd_channels: int | None = None,
        rd_divisor: int = 1,
        act_layer: Callable[..., nn.Module] = nn.ReLU,
        gate_layer: Make = nn.Sigmoid,
        num_layers: int = 1,
        dilation: int = 4,
        mlp_bias: bool = False,
    ) -> None:
        super().__init__()
        reduced = rd_channels or make_divisible(channels * rd_ratio, rd_divisor, round_limit=0.0)
        self.reduce_conv = ConvBnAct(channels, reduced, act_layer, kernel_size=1)
        convs = (
            ConvBnAct(reduced, reduced, act_layer, kernel_size=3, dilation=dilation, padding=dilation)
            for _ in range(num_layers)
        )
        self.dilated_convs = nn.Sequential(*convs)
        self.final_conv = nn.Conv2d(reduced, 1, 1, bias=mlp_bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.final_conv(self.dilated_convs(self.reduce_conv(x))).expand_as(x)


class BAMModule(nn.Module):
    """x * (1 + gate(channels * pixels))."""

    def __init__(
        self,
        channels: int,
        rd_ratio: float = 1.0 / 16,
        rd_channels: int | None = None,
        rd_divisor: int = 1,
        act_layer: Make = nn.ReLU,
        gate_layer: Make = nn.Sigmoid,
        num_channel_attn_layers: int = 2,
        num_spatial_attn_layers: int = 2,
        mlp_bias: bool = False,
    ) -> None:
        super().__init__()
        shared = (channels, rd_ratio, rd_channels, rd_divisor, act_layer, gate_layer)
        self.channel_attn = BamChannelAttn(*shared, num_channel_attn_layers, mlp_bias)
        self.spatial_attn = BamSpatialAttn(*shared, num_spatial_attn_layers, mlp_bias=mlp_bias)
        self.gate = gate_layer()

    def forward(self, x: Tensor) -> Tensor:
        return x * (1 + self.gate(self.channel_attn(x) * self.spatial_attn(x)))
