"""GoogLeNet with batch norm; two auxiliary classifiers while it trains."""

from __future__ import annotations

from typing import NamedTuple

import torch

import oneflow.nn as nn
import oneflow.nn.functional as F
from flowvision.models.inception_blocks import BasicConv2d, transformed
from flowvision.models.pretrained import accepts, by_patterns
from flowvision.models.registry import variant
from oneflow import Tensor


class GoogLeNetOutputs(NamedTuple):
    """What a training pass returns: the scores and those of the auxiliary classifiers."""

    logits: Tensor
    aux_logits2: Tensor
    aux_logits1: Tensor


class Inception(nn.Module):
    def __init__(
        self, inputs: int, ch1x1: int, ch3x3red: int, ch3x3: int, ch5x5red: int, ch5x5: int, pool_proj: int
    ) -> None:
        super().__init__()
        self.branch1 = BasicConv2d(inputs, ch1x1, kernel_size=1)
        self.branch2 = nn.Sequential(
            BasicConv2d(inputs, ch3x3red, kernel_size=1), BasicConv2d(ch3x3red, ch3x3, kernel_size=3, padding=1)
        )
        # 3x3 where the paper has 5x5, as in the weights that TensorFlow's network was trained to.
        self.branch3 = nn.Sequential(
            BasicConv2d(inputs, ch5x5red, kernel_size=1), BasicConv2d(ch5x5red, ch5x5, kernel_size=3, padding=1)
        )
        self.branch4 = nn.Sequential(
            nn.MaxPool2d(3, stride=1, padding=1, ceil_mode=True), BasicConv2d(inputs, pool_proj, kernel_size=1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)], 1)


class InceptionAux(nn.Module):
    def __init__(self, inputs: int, num_classes: int, dropout: float = 0.7) -> None:
        super().__init__()
        self.conv = BasicConv2d(inputs, 128, kernel_size=1)
        self.fc1 = nn.Linear(2048, 1024)
        self.fc2 = nn.Linear(1024, num_classes)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(F.adaptive_avg_pool2d(x, (4, 4))).flatten(1)
        return self.fc2(self.dropout(F.relu(self.fc1(x), inplace=True)))


_BLOCKS = {
    "inception3a": (192, 64, 96, 128, 16, 32, 32),
    "inception3b": (256, 128, 128, 192, 32, 96, 64),
    "inception4a": (480, 192, 96, 208, 16, 48, 64),
    "inception4b": (512, 160, 112, 224, 24, 64, 64),
    "inception4c": (512, 128, 128, 256, 24, 64, 64),
    "inception4d": (512, 112, 144, 288, 32, 64, 64),
    "inception4e": (528, 256, 160, 320, 32, 128, 128),
    "inception5a": (832, 256, 160, 320, 32, 128, 128),
    "inception5b": (832, 384, 192, 384, 48, 128, 128),
}


class GoogLeNet(nn.Module):
    """With ``aux_logits`` a training pass returns :class:`GoogLeNetOutputs`; without, and in evaluation, the scores.

    Weight files that have auxiliary classifiers load without ``aux_logits`` too. ``transform_input`` takes pictures
    normalised by ImageNet's statistics, as the published weights want it; with ``pretrained`` it is True unless said.
    """

    def __init__(
        self,
        num_classes: int = 1000,
        aux_logits: bool = True,
        transform_input: bool = False,
        init_weights: bool = True,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.transform_input = transform_input
        self.conv1 = BasicConv2d(3, 64, kernel_size=7, stride=2, padding=3)
        self.conv2 = BasicConv2d(64, 64, kernel_size=1)
        self.conv3 = BasicConv2d(64, 192, kernel_size=3, padding=1)
        for name, widths in _BLOCKS.items():
            self.add_module(name, Inception(*widths))
        self.aux1 = InceptionAux(512, num_classes) if aux_logits else None
        self.aux2 = InceptionAux(528, num_classes) if aux_logits else None
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(1024, num_classes)
        if init_weights:
            for module in self.modules():
                if isinstance(module, (nn.Conv2d, nn.Linear)):
                    nn.init.trunc_normal_(module.weight, mean=0.0, std=0.01, a=-2, b=2)
        if not aux_logits:
            accepts(self, by_patterns([], drop=r"aux[12]\..*"))

    def forward(self, x: Tensor) -> Tensor | GoogLeNetOutputs:
        x = transformed(x) if self.transform_input else x
        x = F.max_pool2d(self.conv1(x), 3, 2, ceil_mode=True)
        x = F.max_pool2d(self.conv3(self.conv2(x)), 3, 2, ceil_mode=True)
        auxiliary = []
        for name in _BLOCKS:
            x = self.get_submodule(name)(x)
            if (
                self.training
                and self.aux1 is not None
                and self.aux2 is not None
                and name in ("inception4a", "inception4d")
            ):
                auxiliary.append((self.aux1 if name == "inception4a" else self.aux2)(x))
            if name == "inception3b":
                x = F.max_pool2d(x, 3, 2, ceil_mode=True)
            elif name == "inception4e":
                x = F.max_pool2d(x, 2, 2, ceil_mode=True)
        logits = self.fc(self.dropout(x.mean((2, 3))))
        return GoogLeNetOutputs(logits, auxiliary[1], auxiliary[0]) if auxiliary else logits


googlenet = variant("googlenet", GoogLeNet, with_weights={"transform_input": True})
