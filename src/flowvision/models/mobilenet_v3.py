"""MobileNet v3, large and small: inverted residuals with hard swish and weighed channels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import oneflow.nn as nn
from flowvision.layers.blocks.conv_norm import ConvNormActivation, SqueezeExcitation
from flowvision.layers.helpers import make_divisible
from flowvision.models.registry import variant
from oneflow import Tensor

ConvBNActivation = ConvNormActivation  # the published name

Row = tuple[int, int, int, bool, bool, int]  # kernel, expanded and output channels, weighed channels, hard swish, stride
_NORM = partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)

_LARGE: Sequence[Row] = (
    (3, 16, 16, False, False, 1),
    (3, 64, 24, False, False, 2),
    (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2),
    (5, 120, 40, True, False, 1),
    (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2),
    (3, 200, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 480, 112, True, True, 1),
    (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2),
    (5, 960, 160, True, True, 1),
    (5, 960, 160, True, True, 1),
)
_SMALL: Sequence[Row] = (
    (3, 16, 16, True, False, 2),
    (3, 72, 24, False, False, 2),
    (3, 88, 24, False, False, 1),
    (5, 96, 40, True, True, 2),
    (5, 240, 40, True, True, 1),
    (5, 240, 40, True, True, 1),
    (5, 120, 48, True, True, 1),
    (5, 144, 48, True, True, 1),
    (5, 288, 96, True, True, 2),
    (5, 576, 96, True, True, 1),
    (5, 576, 96, True, True, 1),
)


class InvertedResidual(nn.Module):
    def __init__(self, inputs: int, row: Row, width_mult: float) -> None:
        super().__init__()
        kernel, expanded, outputs, weighs, swishes, stride = row
        expanded, outputs = make_divisible(expanded * width_mult), make_divisible(outputs * width_mult)
        activation = nn.Hardswish if swishes else nn.ReLU
        layers: list[nn.Module] = []
        if expanded != inputs:
            layers.append(ConvNormActivation(inputs, expanded, 1, norm=_NORM, activation=activation))
        layers.append(ConvNormActivation(expanded, expanded, kernel, stride, expanded, _NORM, activation))
        if weighs:
            layers.append(SqueezeExcitation(expanded, make_divisible(expanded // 4), scale=nn.Hardsigmoid))
        layers.append(ConvNormActivation(expanded, outputs, 1, norm=_NORM, activation=None))
        self.block = nn.Sequential(*layers)
        self.use_res_connect = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.block(x) if self.use_res_connect else self.block(x)


class MobileNetV3(nn.Module):
    def __init__(self, rows: Sequence[Row], last_channel: int, num_classes: int = 1000, width_mult: float = 1.0, dropout: float = 0.2) -> None:
        super().__init__()
        width = make_divisible(16 * width_mult)
        features: list[nn.Module] = [ConvNormActivation(3, width, 3, 2, norm=_NORM, activation=nn.Hardswish)]
        for row in rows:
            features.append(InvertedResidual(width, row, width_mult))
            width = make_divisible(row[2] * width_mult)
        features.append(ConvNormActivation(width, 6 * width, 1, norm=_NORM, activation=nn.Hardswish))
        self.features = nn.Sequential(*features)
        last = make_divisible(last_channel * width_mult)
        self.classifier = nn.Sequential(nn.Linear(6 * width, last), nn.Hardswish(inplace=True), nn.Dropout(dropout), nn.Linear(last, num_classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0, 0.01)
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean((2, 3)))


mobilenet_v3_large = variant("mobilenet_v3_large", MobileNetV3, rows=_LARGE, last_channel=1280)
mobilenet_v3_small = variant("mobilenet_v3_small", MobileNetV3, rows=_SMALL, last_channel=1024)
