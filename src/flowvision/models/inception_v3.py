"""Inception v3 with torchvision's names; an auxiliary classifier while it trains."""

from __future__ import annotations

from typing import NamedTuple

import torch

import oneflow.nn as nn
import oneflow.nn.functional as F
from flowvision.models.inception_blocks import BasicConv2d, init_truncated, transformed
from flowvision.models.pretrained import accepts, by_patterns
from flowvision.models.registry import variant
from oneflow import Tensor


class InceptionOutputs(NamedTuple):
    """What a training pass returns: the scores and those of the auxiliary classifier."""

    logits: Tensor
    aux_logits: Tensor


def _conv(
    inputs: int, width: int, kernel: int | tuple[int, int] = 1, stride: int = 1, padding: int | tuple[int, int] = 0
) -> BasicConv2d:
    return BasicConv2d(inputs, width, kernel_size=kernel, stride=stride, padding=padding)


def _wide(inputs: int, width: int, length: int) -> BasicConv2d:
    return _conv(inputs, width, (1, length), padding=(0, length // 2))


def _tall(inputs: int, width: int, length: int) -> BasicConv2d:
    return _conv(inputs, width, (length, 1), padding=(length // 2, 0))


def _pooled(x: Tensor) -> Tensor:
    return F.avg_pool2d(x, 3, 1, 1)


class InceptionA(nn.Module):
    def __init__(self, inputs: int, pool_features: int) -> None:
        super().__init__()
        self.branch1x1 = _conv(inputs, 64)
        self.branch5x5_1, self.branch5x5_2 = _conv(inputs, 48), _conv(48, 64, 5, padding=2)
        self.branch3x3dbl_1 = _conv(inputs, 64)
        self.branch3x3dbl_2, self.branch3x3dbl_3 = _conv(64, 96, 3, padding=1), _conv(96, 96, 3, padding=1)
        self.branch_pool = _conv(inputs, pool_features)

    def forward(self, x: Tensor) -> Tensor:
        third = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return torch.cat(
            [self.branch1x1(x), self.branch5x5_2(self.branch5x5_1(x)), third, self.branch_pool(_pooled(x))], 1
        )


class InceptionB(nn.Module):
    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.branch3x3 = _conv(inputs, 384, 3, 2)
        self.branch3x3dbl_1, self.branch3x3dbl_2 = _conv(inputs, 64), _conv(64, 96, 3, padding=1)
        self.branch3x3dbl_3 = _conv(96, 96, 3, 2)

    def forward(self, x: Tensor) -> Tensor:
        second = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return torch.cat([self.branch3x3(x), second, F.max_pool2d(x, 3, 2)], 1)


class InceptionC(nn.Module):
    def __init__(self, inputs: int, channels_7x7: int) -> None:
        super().__init__()
        c = channels_7x7
        self.branch1x1 = _conv(inputs, 192)
        self.branch7x7_1, self.branch7x7_2, self.branch7x7_3 = _conv(inputs, c), _wide(c, c, 7), _tall(c, 192, 7)
        self.branch7x7dbl_1, self.branch7x7dbl_2, self.branch7x7dbl_3 = _conv(inputs, c), _tall(c, c, 7), _wide(c, c, 7)
        self.branch7x7dbl_4, self.branch7x7dbl_5 = _tall(c, c, 7), _wide(c, 192, 7)
        self.branch_pool = _conv(inputs, 192)

    def forward(self, x: Tensor) -> Tensor:
        second = self.branch7x7_3(self.branch7x7_2(self.branch7x7_1(x)))
        third = self.branch7x7dbl_3(self.branch7x7dbl_2(self.branch7x7dbl_1(x)))
        third = self.branch7x7dbl_5(self.branch7x7dbl_4(third))
        return torch.cat([self.branch1x1(x), second, third, self.branch_pool(_pooled(x))], 1)


class InceptionD(nn.Module):
    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.branch3x3_1, self.branch3x3_2 = _conv(inputs, 192), _conv(192, 320, 3, 2)
        self.branch7x7x3_1, self.branch7x7x3_2, self.branch7x7x3_3 = (
            _conv(inputs, 192),
            _wide(192, 192, 7),
            _tall(192, 192, 7),
        )
        self.branch7x7x3_4 = _conv(192, 192, 3, 2)

    def forward(self, x: Tensor) -> Tensor:
        second = self.branch7x7x3_4(self.branch7x7x3_3(self.branch7x7x3_2(self.branch7x7x3_1(x))))
        return torch.cat([self.branch3x3_2(self.branch3x3_1(x)), second, F.max_pool2d(x, 3, 2)], 1)


class InceptionE(nn.Module):
    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.branch1x1 = _conv(inputs, 320)
        self.branch3x3_1, self.branch3x3_2a, self.branch3x3_2b = (
            _conv(inputs, 384),
            _wide(384, 384, 3),
            _tall(384, 384, 3),
        )
        self.branch3x3dbl_1, self.branch3x3dbl_2 = _conv(inputs, 448), _conv(448, 384, 3, padding=1)
        self.branch3x3dbl_3a, self.branch3x3dbl_3b = _wide(384, 384, 3), _tall(384, 384, 3)
        self.branch_pool = _conv(inputs, 192)

    def forward(self, x: Tensor) -> Tensor:
        second, third = self.branch3x3_1(x), self.branch3x3dbl_2(self.branch3x3dbl_1(x))
        parts = [self.branch1x1(x), self.branch3x3_2a(second), self.branch3x3_2b(second)]
        parts += [self.branch3x3dbl_3a(third), self.branch3x3dbl_3b(third), self.branch_pool(_pooled(x))]
        return torch.cat(parts, 1)


class InceptionAux(nn.Module):
    def __init__(self, inputs: int, num_classes: int) -> None:
        super().__init__()
        self.conv0 = _conv(inputs, 128)
        self.conv1 = _conv(128, 768, 5)
        self.conv1.conv.stddev = 0.01  # type: ignore[assignment]
        self.fc = nn.Linear(768, num_classes)
        self.fc.stddev = 0.001  # type: ignore[assignment]

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.conv1(self.conv0(F.avg_pool2d(x, 5, 3))).mean((2, 3)))


class Inception3(nn.Module):
    """With ``aux_logits`` a training pass returns :class:`InceptionOutputs`; without, and in evaluation, the scores.
    Pictures have 299 x 299.

    Weight files that have an auxiliary classifier load without ``aux_logits`` too. ``transform_input`` takes pictures
    normalised by ImageNet's statistics, as the published weights want it; with ``pretrained`` it is True unless said.
    """

    def __init__(
        self,
        num_classes: int = 1000,
        aux_logits: bool = True,
        transform_input: bool = False,
        init_weights: bool = True,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.transform_input = transform_input
        self.Conv2d_1a_3x3 = _conv(3, 32, 3, 2)
        self.Conv2d_2a_3x3 = _conv(32, 32, 3)
        self.Conv2d_2b_3x3 = _conv(32, 64, 3, padding=1)
        self.Conv2d_3b_1x1 = _conv(64, 80)
        self.Conv2d_4a_3x3 = _conv(80, 192, 3)
        self.Mixed_5b, self.Mixed_5c, self.Mixed_5d = InceptionA(192, 32), InceptionA(256, 64), InceptionA(288, 64)
        self.Mixed_6a = InceptionB(288)
        self.Mixed_6b, self.Mixed_6c = InceptionC(768, 128), InceptionC(768, 160)
        self.Mixed_6d, self.Mixed_6e = InceptionC(768, 160), InceptionC(768, 192)
        self.AuxLogits = InceptionAux(768, num_classes) if aux_logits else None
        self.Mixed_7a = InceptionD(768)
        self.Mixed_7b, self.Mixed_7c = InceptionE(1280), InceptionE(2048)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(2048, num_classes)
        if init_weights:
            init_truncated(self)
        if not aux_logits:
            accepts(self, by_patterns([], drop=r"AuxLogits\..*"))

    def forward(self, x: Tensor) -> Tensor | InceptionOutputs:
        x = transformed(x) if self.transform_input else x
        x = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x)))
        x = self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(F.max_pool2d(x, 3, 2)))
        x = self.Mixed_5d(self.Mixed_5c(self.Mixed_5b(F.max_pool2d(x, 3, 2))))
        x = self.Mixed_6e(self.Mixed_6d(self.Mixed_6c(self.Mixed_6b(self.Mixed_6a(x)))))
        auxiliary = self.AuxLogits(x) if self.training and self.AuxLogits is not None else None
        x = self.Mixed_7c(self.Mixed_7b(self.Mixed_7a(x)))
        logits = self.fc(self.dropout(x.mean((2, 3))))
        return logits if auxiliary is None else InceptionOutputs(logits, auxiliary)


inception_v3 = variant("inception_v3", Inception3, with_weights={"transform_input": True})
