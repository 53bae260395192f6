"""VGG: 3x3 convolutions in five groups, with and without batch norm. Timm's files, whose full connections are
convolutions, load too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import oneflow.nn as nn
from flowvision.models.pretrained import accepts, by_patterns
from flowvision.models.registry import variant
from oneflow import Tensor

_GROUPS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


def make_layers(cfg: Sequence[int | str], batch_norm: bool = False) -> nn.Sequential:
    """A convolution for each number, of so many channels, and a pool for each "M"."""
    layers: list[nn.Module] = []
    channels = 3
    for width in cfg:
        if not isinstance(width, int):
            layers.append(nn.MaxPool2d(2, 2))
            continue
        layers.append(nn.Conv2d(channels, width, 3, padding=1))
        if batch_norm:
            layers.append(nn.BatchNorm2d(width))
        layers.append(nn.ReLU(inplace=True))
        channels = width
    return nn.Sequential(*layers)


class VGG(nn.Module):
    """``features`` give 512 channels, as those of :func:`make_layers` do."""

    def __init__(
        self, features: nn.Module, num_classes: int = 1000, init_weights: bool = True, dropout: float = 0.5
    ) -> None:
        super().__init__()
        self.features = features
        self.avgpool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096),
            nn.ReLU(True),
            nn.Dropout(dropout),
            nn.Linear(4096, 4096),
            nn.ReLU(True),
            nn.Dropout(dropout),
            nn.Linear(4096, num_classes),
        )
        if init_weights:
            self._init()
        accepts(self, _from_timm)

    def _init(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0, 0.01)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


_FULL = by_patterns(
    [
        (r"pre_logits\.fc1\.(\w+)", r"classifier.0.\1"),
        (r"pre_logits\.fc2\.(\w+)", r"classifier.3.\1"),
        (r"head\.fc\.(\w+)", r"classifier.6.\1"),
    ]
)


def _from_timm(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        key: value.flatten(1) if key.startswith("classifier.") and value.dim() == 4 else value
        for key, value in _FULL(state).items()
    }


def _of_groups(repeats: Sequence[int], batch_norm: bool = False, **options: Any) -> VGG:
    cfg: list[int | str] = []
    for repeat, width in zip(repeats, (64, 128, 256, 512, 512)):
        cfg += [width] * repeat + ["M"]
    return VGG(make_layers(cfg, batch_norm), **options)


vgg11, vgg13, vgg16, vgg19 = (variant(f"vgg{depth}", _of_groups, repeats=repeats) for depth, repeats in _GROUPS.items())
vgg11_bn, vgg13_bn, vgg16_bn, vgg19_bn = (
    variant(f"vgg{depth}_bn", _of_groups, repeats=repeats, batch_norm=True) for depth, repeats in _GROUPS.items()
)
