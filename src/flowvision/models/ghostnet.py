"""GhostNet: half of a layer's channels made from the other half by cheap depthwise convolutions."""

from __future__ import annotations

import torch

import oneflow.nn as nn
import oneflow.nn.functional as F
from flowvision.layers.helpers import make_divisible
from flowvision.models.registry import variant
from oneflow import Tensor

# Stages of blocks: kernel, expanded channels, output channels, ratio of weighed channels, stride.
_STAGES = (
    ((3, 16, 16, 0.0, 1),),
    ((3, 48, 24, 0.0, 2),),
    ((3, 72, 24, 0.0, 1),),
    ((5, 72, 40, 0.25, 2),),
    ((5, 120, 40, 0.25, 1),),
    ((3, 240, 80, 0.0, 2),),
    ((3, 200, 80, 0.0, 1), (3, 184, 80, 0.0, 1), (3, 184, 80, 0.0, 1), (3, 480, 112, 0.25, 1), (3, 672, 112, 0.25, 1)),
    ((5, 672, 160, 0.25, 2),),
    ((5, 960, 160, 0.0, 1), (5, 960, 160, 0.25, 1), (5, 960, 160, 0.0, 1), (5, 960, 160, 0.25, 1)),
)


def hard_sigmoid(x: Tensor, inplace: bool = False) -> Tensor:
    """relu6(x + 3) / 6."""
    return F.hardsigmoid(x, inplace)


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int, ratio: float) -> None:
        super().__init__()
        reduced = make_divisible(channels * ratio, 4)
        self.conv_reduce = nn.Conv2d(channels, reduced, 1)
        self.conv_expand = nn.Conv2d(reduced, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        weights = self.conv_expand(F.relu(self.conv_reduce(x.mean((2, 3), keepdim=True))))
        return x * hard_sigmoid(weights)


class ConvBnAct(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.act1 = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.act1(self.bn1(self.conv(x)))


class GhostModule(nn.Module):
    def __init__(self, inputs: int, outputs: int, is_active: bool) -> None:
        super().__init__()
        self.outputs = outputs
        width = -(-outputs // 2)

        def last() -> nn.Module:
            return nn.ReLU(inplace=True) if is_active else nn.Identity()

        self.primary_conv = nn.Sequential(nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), last())
        self.cheap_operation = nn.Sequential(
            nn.Conv2d(width, width, 3, 1, 1, groups=width, bias=False), nn.BatchNorm2d(width), last()
        )

    def forward(self, x: Tensor) -> Tensor:
        first = self.primary_conv(x)
        return torch.cat([first, self.cheap_operation(first)], 1)[:, : self.outputs]


class GhostBottleneck(nn.Module):
    def __init__(self, inputs: int, middle: int, outputs: int, kernel: int, stride: int, se_ratio: float) -> None:
        super().__init__()
        self.ghost1 = GhostModule(inputs, middle, True)
        self.conv_dw = (
            nn.Conv2d(middle, middle, kernel, stride, kernel // 2, groups=middle, bias=False) if stride > 1 else None
        )
        self.bn_dw = nn.BatchNorm2d(middle) if stride > 1 else None
        self.se = SqueezeExcite(middle, se_ratio) if se_ratio > 0 else None
        self.ghost2 = GhostModule(middle, outputs, False)
        self.shortcut = nn.Sequential()
        if inputs != outputs or stride != 1:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, inputs, kernel, stride, kernel // 2, groups=inputs, bias=False),
                nn.BatchNorm2d(inputs),
                nn.Conv2d(inputs, outputs, 1, bias=False),
                nn.BatchNorm2d(outputs),
            )

    def forward(self, x: Tensor) -> Tensor:
        y = self.ghost1(x)
        if self.conv_dw is not None and self.bn_dw is not None:
            y = self.bn_dw(self.conv_dw(y))
        if self.se is not None:
            y = self.se(y)
        return self.ghost2(y) + self.shortcut(x)


class GhostNet(nn.Module):
    def __init__(self, num_classes: int = 1000, width: float = 1.0, dropout: float = 0.2) -> None:
        super().__init__()
        inputs = make_divisible(16 * width, 4)
        self.conv_stem = nn.Conv2d(3, inputs, 3, 2, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inputs)
        self.act1 = nn.ReLU(inplace=True)
        stages: list[nn.Module] = []
        middle = inputs
        for stage in _STAGES:
            blocks = []
            for kernel, expanded, outputs, ratio, stride in stage:
                middle, out = make_divisible(expanded * width, 4), make_divisible(outputs * width, 4)
                blocks.append(GhostBottleneck(inputs, middle, out, kernel, stride, ratio))
                inputs = out
            stages.append(nn.Sequential(*blocks))
        stages.append(nn.Sequential(ConvBnAct(inputs, middle)))
        self.blocks = nn.Sequential(*stages)
        self.conv_head = nn.Conv2d(middle, 1280, 1)
        self.act2 = nn.ReLU(inplace=True)
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(1280, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.act1(self.bn1(self.conv_stem(x))))
        x = self.act2(self.conv_head(x.mean((2, 3), keepdim=True))).flatten(1)
        return self.classifier(self.dropout(x))


ghostnet = variant("ghostnet", GhostNet)
