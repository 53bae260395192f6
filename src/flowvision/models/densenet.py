"""DenseNet: every layer sees the results of all before it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch

import oneflow.nn as nn
import oneflow.nn.functional as F
from flowvision.models.pretrained import accepts, by_patterns
from flowvision.models.registry import variant
from oneflow import Tensor


class _DenseLayer(nn.Module):
    def __init__(self, inputs: int, growth: int, bottleneck: int, drop_rate: float) -> None:
        super().__init__()
        self.norm1, self.relu1 = nn.BatchNorm2d(inputs), nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(inputs, bottleneck * growth, 1, bias=False)
        self.norm2, self.relu2 = nn.BatchNorm2d(bottleneck * growth), nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(bottleneck * growth, growth, 3, padding=1, bias=False)
        self.drop_rate = drop_rate

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        x = self.conv1(self.relu1(self.norm1(torch.cat(list(features), 1))))
        x = self.conv2(self.relu2(self.norm2(x)))
        return F.dropout(x, self.drop_rate, self.training) if self.drop_rate else x


class _DenseBlock(nn.ModuleDict):
    def __init__(self, count: int, inputs: int, growth: int, bottleneck: int, drop_rate: float) -> None:
        super().__init__()
        for number in range(count):
            self[f"denselayer{number + 1}"] = _DenseLayer(inputs + number * growth, growth, bottleneck, drop_rate)

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for layer in self.values():
            features.append(layer(features))
        return torch.cat(features, 1)


class DenseNet(nn.Module):
    def __init__(
        self,
        growth_rate: int = 32,
        block_config: Sequence[int] = (6, 12, 24, 16),
        num_init_features: int = 64,
        bn_size: int = 4,
        drop_rate: float = 0.0,
        num_classes: int = 1000,
    ) -> None:
        super().__init__()
        layers: OrderedDict[str, nn.Module] = OrderedDict(
            conv0=nn.Conv2d(3, num_init_features, 7, stride=2, padding=3, bias=False),
            norm0=nn.BatchNorm2d(num_init_features),
            relu0=nn.ReLU(inplace=True),
            pool0=nn.MaxPool2d(3, stride=2, padding=1),
        )
        width = num_init_features
        for number, count in enumerate(block_config, 1):
            layers[f"denseblock{number}"] = _DenseBlock(count, width, growth_rate, bn_size, drop_rate)
            width += count * growth_rate
            if number < len(block_config):
                layers[f"transition{number}"] = _transition(width)
                width //= 2
        layers["norm5"] = nn.BatchNorm2d(width)
        self.features = nn.Sequential(layers)
        self.classifier = nn.Linear(width, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
            elif isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
        # Files of 2017 have a dot inside the names of layers: norm.1 for norm1.
        accepts(self, by_patterns([(r"(.*denselayer\d+\.(?:norm|conv))\.([12]\..*)", r"\1\2")]))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(F.relu(self.features(x)).mean((2, 3)))


def _transition(width: int) -> nn.Sequential:
    return nn.Sequential(
        OrderedDict(
            norm=nn.BatchNorm2d(width),
            relu=nn.ReLU(inplace=True),
            conv=nn.Conv2d(width, width // 2, 1, bias=False),
            pool=nn.AvgPool2d(2, stride=2),
        )
    )


densenet121 = variant("densenet121", DenseNet)
densenet161 = variant("densenet161", DenseNet, growth_rate=48, block_config=(6, 12, 36, 24), num_init_features=96)
densenet169 = variant("densenet169", DenseNet, block_config=(6, 12, 32, 32))
densenet201 = variant("densenet201", DenseNet, block_config=(6, 12, 48, 32))
