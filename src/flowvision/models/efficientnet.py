"""EfficientNet B0 to B7."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import oneflow.nn as nn
from flowvision.layers.blocks.conv_norm import ConvNormActivation, SqueezeExcitation
from flowvision.layers.helpers import make_divisible
from flowvision.layers.regularization.stochastic_depth import StochasticDepth
from flowvision.models.registry import variant
from oneflow import Tensor

Make = Callable[[int], nn.Module]

# Expansion, kernel, stride, inputs, outputs, repeats, of B0.
_STAGES = (
    (1, 3, 1, 32, 16, 1),
    (6, 3, 2, 16, 24, 2),
    (6, 5, 2, 24, 40, 2),
    (6, 3, 2, 40, 80, 3),
    (6, 5, 1, 80, 112, 3),
    (6, 5, 2, 112, 192, 4),
    (6, 3, 1, 192, 320, 1),
)


class MBConvConfig:
    """The blocks of one stage in numbers; ``width_mult`` is taken into the channels, ``depth_mult`` into the number of
    blocks."""

    def __init__(
        self,
        expand_ratio: float,
        kernel: int,
        stride: int,
        input_channels: int,
        out_channels: int,
        num_layers: int,
        width_mult: float = 1.0,
        depth_mult: float = 1.0,
    ) -> None:
        self.expand_ratio, self.kernel, self.stride = expand_ratio, kernel, stride
        self.input_channels = self.adjust_channels(input_channels, width_mult)
        self.out_channels = self.adjust_channels(out_channels, width_mult)
        self.num_layers = self.adjust_depth(num_layers, depth_mult)

    @staticmethod
    def adjust_channels(channels: int, width_mult: float, min_value: int | None = None) -> int:
        """Channels times the width, as a multiple of 8."""
        return make_divisible(channels * width_mult, 8, min_value)

    @staticmethod
    def adjust_depth(num_layers: int, depth_mult: float) -> int:
        """Blocks times the depth, rounded up."""
        return math.ceil(num_layers * depth_mult)


class MBConv(nn.Module):
    """The first block of a stage, or one that keeps channels and size."""

    def __init__(
        self, cnf: MBConvConfig, stochastic_depth_prob: float, norm_layer: Make = nn.BatchNorm2d, is_first: bool = True
    ) -> None:
        super().__init__()
        inputs, stride = (cnf.input_channels, cnf.stride) if is_first else (cnf.out_channels, 1)
        expanded = make_divisible(inputs * cnf.expand_ratio)
        layers: list[nn.Module] = []
        if expanded != inputs:
            layers.append(ConvNormActivation(inputs, expanded, 1, norm=norm_layer, activation=nn.SiLU))
        layers.append(ConvNormActivation(expanded, expanded, cnf.kernel, stride, expanded, norm_layer, nn.SiLU))
        layers.append(SqueezeExcitation(expanded, max(1, inputs // 4), activation=nn.SiLU))
        layers.append(ConvNormActivation(expanded, cnf.out_channels, 1, norm=norm_layer, activation=None))
        self.block = nn.Sequential(*layers)
        self.stochastic_depth = StochasticDepth(stochastic_depth_prob, "row")
        self.use_res_connect = stride == 1 and inputs == cnf.out_channels

    def forward(self, x: Tensor) -> Tensor:
        return self.stochastic_depth(self.block(x)) + x if self.use_res_connect else self.block(x)


class EfficientNet(nn.Module):
    def __init__(
        self,
        inverted_residual_setting: Sequence[MBConvConfig],
        dropout: float,
        stochastic_depth_prob: float = 0.2,
        num_classes: int = 1000,
        norm_layer: Make = nn.BatchNorm2d,
    ) -> None:
        super().__init__()
        first, last = inverted_residual_setting[0].input_channels, inverted_residual_setting[-1].out_channels
        features: list[nn.Module] = [ConvNormActivation(3, first, 3, 2, norm=norm_layer, activation=nn.SiLU)]
        done, total = 0, sum(cnf.num_layers for cnf in inverted_residual_setting)
        for cnf in inverted_residual_setting:
            drops = [stochastic_depth_prob * (done + number) / total for number in range(cnf.num_layers)]
            features.append(
                nn.Sequential(*(MBConv(cnf, drop, norm_layer, number == 0) for number, drop in enumerate(drops)))
            )
            done += cnf.num_layers
        features.append(ConvNormActivation(last, 4 * last, 1, norm=norm_layer, activation=nn.SiLU))
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(4 * last, num_classes))
        self._init()

    def _init(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Linear):
                limit = 1.0 / math.sqrt(module.out_features)
                nn.init.uniform_(module.weight, -limit, limit)
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean((2, 3)))


def _of_size(width_mult: float, depth_mult: float, dropout: float, **options: Any) -> EfficientNet:
    return EfficientNet([MBConvConfig(*stage, width_mult, depth_mult) for stage in _STAGES], dropout, **options)


efficientnet_b0 = variant("efficientnet_b0", _of_size, width_mult=1.0, depth_mult=1.0, dropout=0.2)
efficientnet_b1 = variant("efficientnet_b1", _of_size, width_mult=1.0, depth_mult=1.1, dropout=0.2)
efficientnet_b2 = variant("efficientnet_b2", _of_size, width_mult=1.1, depth_mult=1.2, dropout=0.3)
efficientnet_b3 = variant("efficientnet_b3", _of_size, width_mult=1.2, depth_mult=1.4, dropout=0.3)
efficientnet_b4 = variant("efficientnet_b4", _of_size, width_mult=1.4, depth_mult=1.8, dropout=0.4)
_LARGE: dict[str, Make] = {"norm_layer": partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)}
efficientnet_b5 = variant("efficientnet_b5", _of_size, width_mult=1.6, depth_mult=2.2, dropout=0.4, **_LARGE)
efficientnet_b6 = variant("efficientnet_b6", _of_size, width_mult=1.8, depth_mult=2.6, dropout=0.5, **_LARGE)
efficientnet_b7 = variant("efficientnet_b7", _of_size, width_mult=2.0, depth_mult=3.1, dropout=0.5, **_LARGE)
