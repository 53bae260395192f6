"""MNASNet in its depths 0.5, 0.75, 1.0 and 1.3."""

from __future__ import annotations

import oneflow.nn as nn
from flowvision.layers.helpers import make_divisible
from flowvision.models.registry import variant
from oneflow import Tensor

_MOMENTUM = 1 - 0.9997
# Kernel, stride, expansion, repeats, channels.
_STACKS = ((3, 2, 3, 3, 24), (5, 2, 3, 3, 40), (5, 2, 6, 3, 80), (3, 1, 6, 2, 96), (5, 2, 6, 4, 192), (3, 1, 6, 1, 320))


def _norm(width: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(width, momentum=_MOMENTUM)


class _InvertedResidual(nn.Module):
    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        middle = inputs * expansion
        self.apply_residual = inputs == outputs and stride == 1
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, middle, 1, bias=False),
            _norm(middle),
            nn.ReLU(inplace=True),
            nn.Conv2d(middle, middle, kernel, stride, kernel // 2, groups=middle, bias=False),
            _norm(middle),
            nn.ReLU(inplace=True),
            nn.Conv2d(middle, outputs, 1, bias=False),
            _norm(outputs),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x) + x if self.apply_residual else self.layers(x)


class MNASNet(nn.Module):
    def __init__(self, alpha: float, num_classes: int = 1000, dropout: float = 0.2) -> None:
        super().__init__()
        depths = [make_divisible(depth * alpha) for depth in (32, 16, *(stack[-1] for stack in _STACKS))]
        layers: list[nn.Module] = [
            nn.Conv2d(3, depths[0], 3, padding=1, stride=2, bias=False),
            _norm(depths[0]),
            nn.ReLU(inplace=True),
            nn.Conv2d(depths[0], depths[0], 3, padding=1, groups=depths[0], bias=False),
            _norm(depths[0]),
            nn.ReLU(inplace=True),
            nn.Conv2d(depths[0], depths[1], 1, bias=False),
            _norm(depths[1]),
        ]
        for (kernel, stride, expansion, repeats, _), inputs, outputs in zip(_STACKS, depths[1:], depths[2:]):
            blocks = [_InvertedResidual(inputs, outputs, kernel, stride, expansion)]
            blocks += [_InvertedResidual(outputs, outputs, kernel, 1, expansion) for _ in range(1, repeats)]
            layers.append(nn.Sequential(*blocks))
        layers += [nn.Conv2d(depths[-1], 1280, 1, bias=False), _norm(1280), nn.ReLU(inplace=True)]
        self.layers = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(1280, num_classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.Linear):
                nn.init.kaiming_uniform_(module.weight, mode="fan_out", nonlinearity="sigmoid")
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.layers(x).mean((2, 3)))


mnasnet0_5 = variant("mnasnet0_5", MNASNet, alpha=0.5)
mnasnet0_75 = variant("mnasnet0_75", MNASNet, alpha=0.75)
mnasnet1_0 = variant("mnasnet1_0", MNASNet, alpha=1.0)
mnasnet1_3 = variant("mnasnet1_3", MNASNet, alpha=1.3)
