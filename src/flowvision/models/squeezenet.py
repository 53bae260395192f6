"""SqueezeNet 1.0 and 1.1: fire modules, and a convolution for a classifier."""

from __future__ import annotations

import torch

import oneflow.nn as nn
from flowvision.models.registry import variant
from oneflow import Tensor


class Fire(nn.Module):
    """A 1x1 that squeezes, then 1x1 and 3x3 side by side."""

    def __init__(self, inplanes: int, squeeze: int, expand: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inplanes, squeeze, 1)
        self.squeeze_activation = nn.ReLU(inplace=True)
        self.expand1x1 = nn.Conv2d(squeeze, expand, 1)
        self.expand1x1_activation = nn.ReLU(inplace=True)
        self.expand3x3 = nn.Conv2d(squeeze, expand, 3, padding=1)
        self.expand3x3_activation = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.squeeze_activation(self.squeeze(x))
        return torch.cat(
            [self.expand1x1_activation(self.expand1x1(x)), self.expand3x3_activation(self.expand3x3(x))], 1
        )


_FIRES = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
# Before which fire modules a pool stands.
_POOLS = {"1_0": (0, 3, 7), "1_1": (0, 2, 4)}


class SqueezeNet(nn.Module):
    def __init__(self, version: str = "1_0", num_classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        width, kernel = (96, 7) if version == "1_0" else (64, 3)
        features: list[nn.Module] = [nn.Conv2d(3, width, kernel, stride=2), nn.ReLU(inplace=True)]
        for number, (squeeze, expand) in enumerate(_FIRES):
            if number in _POOLS[version]:
                features.append(nn.MaxPool2d(3, stride=2, ceil_mode=True))
            features.append(Fire(width, squeeze, expand))
            width = 2 * expand
        self.features = nn.Sequential(*features)
        last = nn.Conv2d(512, num_classes, 1)
        self.classifier = nn.Sequential(nn.Dropout(dropout), last, nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d((1, 1)))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                if module is last:
                    nn.init.normal_(module.weight, 0.0, 0.01)
                else:
                    nn.init.kaiming_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x)).flatten(1)


squeezenet1_0 = variant("squeezenet1_0", SqueezeNet, version="1_0")
squeezenet1_1 = variant("squeezenet1_1", SqueezeNet, version="1_1")
