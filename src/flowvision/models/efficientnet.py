"""EfficientNet B0 to B7."""

from __future__ import annotations

import math
from functools import partial

import oneflow.nn as nn
from flowvision.layers.blocks.conv_norm import ConvNormActivation, SqueezeExcitation
from flowvision.layers.helpers import make_divisible
from flowvision.layers.regularization.stochastic_depth import StochasticDepth
from flowvision.models.registry import variant
from oneflow import Tensor

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


class MBConv(nn.Module):
    def __init__(self, expansion: int, kernel: int, stride: int, inputs: int, outputs: int, drop: float, norm: partial[nn.BatchNorm2d]) -> None:
        super().__init__()
        expanded = make_divisible(inputs * expansion)
        layers: list[nn.Module] = []
        if expanded != inputs:
            layers.append(ConvNormActivation(inputs, expanded, 1, norm=norm, activation=nn.SiLU))
        layers.append(ConvNormActivation(expanded, expanded, kernel, stride, expanded, norm, nn.SiLU))
        layers.append(SqueezeExcitation(expanded, max(1, inputs // 4), activation=nn.SiLU))
        layers.append(ConvNormActivation(expanded, outputs, 1, norm=norm, activation=None))
        self.block = nn.Sequential(*layers)
        self.stochastic_depth = StochasticDepth(drop, "row")
        self.use_res_connect = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return self.stochastic_depth(self.block(x)) + x if self.use_res_connect else self.block(x)


class EfficientNet(nn.Module):
    def __init__(
        self,
        width_mult: float,
        depth_mult: float,
        dropout: float,
        stochastic_depth_prob: float = 0.2,
        num_classes: int = 1000,
        norm_eps: float = 1e-5,
        norm_momentum: float = 0.1,
    ) -> None:
        super().__init__()
        norm = partial(nn.BatchNorm2d, eps=norm_eps, momentum=norm_momentum)
        repeats = [math.ceil(stage[-1] * depth_mult) for stage in _STAGES]
        features: list[nn.Module] = [ConvNormActivation(3, make_divisible(32 * width_mult), 3, 2, norm=norm, activation=nn.SiLU)]
        done = 0
        for (expansion, kernel, stride, into, out, _), count in zip(_STAGES, repeats):
            inputs, outputs = make_divisible(into * width_mult), make_divisible(out * width_mult)
            blocks = []
            for number in range(count):
                drop = stochastic_depth_prob * done / sum(repeats)
                blocks.append(MBConv(expansion, kernel, stride if number == 0 else 1, inputs if number == 0 else outputs, outputs, drop, norm))
                done += 1
            features.append(nn.Sequential(*blocks))
        last = 4 * outputs
        features.append(ConvNormActivation(outputs, last, 1, norm=norm, activation=nn.SiLU))
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(last, num_classes))
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


efficientnet_b0 = variant("efficientnet_b0", EfficientNet, width_mult=1.0, depth_mult=1.0, dropout=0.2)
efficientnet_b1 = variant("efficientnet_b1", EfficientNet, width_mult=1.0, depth_mult=1.1, dropout=0.2)
efficientnet_b2 = variant("efficientnet_b2", EfficientNet, width_mult=1.1, depth_mult=1.2, dropout=0.3)
efficientnet_b3 = variant("efficientnet_b3", EfficientNet, width_mult=1.2, depth_mult=1.4, dropout=0.3)
efficientnet_b4 = variant("efficientnet_b4", EfficientNet, width_mult=1.4, depth_mult=1.8, dropout=0.4)
_LARGE = {"norm_eps": 0.001, "norm_momentum": 0.01}
efficientnet_b5 = variant("efficientnet_b5", EfficientNet, width_mult=1.6, depth_mult=2.2, dropout=0.4, **_LARGE)
efficientnet_b6 = variant("efficientnet_b6", EfficientNet, width_mult=1.8, depth_mult=2.6, dropout=0.5, **_LARGE)
efficientnet_b7 = variant("efficientnet_b7", EfficientNet, width_mult=2.0, depth_mult=3.1, dropout=0.5, **_LARGE)
