"""MobileNet v2: inverted residuals with linear bottlenecks."""

from __future__ import annotations

import oneflow.nn as nn
from flowvision.layers.blocks.conv_norm import ConvNormActivation
from flowvision.layers.helpers import make_divisible
from flowvision.models.registry import variant
from oneflow import Tensor

ConvBNActivation = ConvNormActivation  # the published name

# Expansion, channels, repeats, stride of the first.
_SETTING = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


class InvertedResidual(nn.Module):
    def __init__(self, inp: int, oup: int, stride: int, expand_ratio: int) -> None:
        super().__init__()
        hidden = inp * expand_ratio
        layers: list[nn.Module] = []
        if expand_ratio != 1:
            layers.append(ConvNormActivation(inp, hidden, 1, activation=nn.ReLU6))
        layers.append(ConvNormActivation(hidden, hidden, 3, stride, hidden, activation=nn.ReLU6))
        layers += [nn.Conv2d(hidden, oup, 1, bias=False), nn.BatchNorm2d(oup)]
        self.conv = nn.Sequential(*layers)
        self.use_res_connect = stride == 1 and inp == oup

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


class MobileNetV2(nn.Module):
    def __init__(
        self, num_classes: int = 1000, width_mult: float = 1.0, round_nearest: int = 8, dropout: float = 0.2
    ) -> None:
        super().__init__()
        width = make_divisible(32 * width_mult, round_nearest)
        self.last_channel = make_divisible(1280 * max(1.0, width_mult), round_nearest)
        features: list[nn.Module] = [ConvNormActivation(3, width, 3, 2, activation=nn.ReLU6)]
        for expansion, channels, repeats, stride in _SETTING:
            out = make_divisible(channels * width_mult, round_nearest)
            for number in range(repeats):
                features.append(InvertedResidual(width, out, stride if number == 0 else 1, expansion))
                width = out
        features.append(ConvNormActivation(width, self.last_channel, 1, activation=nn.ReLU6))
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(self.last_channel, num_classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0, 0.01)
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean((2, 3)))


mobilenet_v2 = variant("mobilenet_v2", MobileNetV2)
