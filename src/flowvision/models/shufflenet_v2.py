"""ShuffleNet v2: half of the channels goes through a block, then all are shuffled."""

from __future__ import annotations

from collections.abc import Sequence

import torch

import oneflow.nn as nn
from flowvision.models.registry import variant
from oneflow import Tensor


def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    """Channels of ``groups`` groups, dealt out in turn."""
    batch, channels, height, width = x.shape
    return (
        x.view(batch, groups, channels // groups, height, width).transpose(1, 2).reshape(batch, channels, height, width)
    )


def _pointwise(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]


def _depthwise(width: int, stride: int) -> list[nn.Module]:
    return [nn.Conv2d(width, width, 3, stride, 1, groups=width, bias=False), nn.BatchNorm2d(width)]


class InvertedResidual(nn.Module):
    def __init__(self, inp: int, oup: int, stride: int) -> None:
        super().__init__()
        self.stride, width = stride, oup // 2
        self.branch1 = nn.Sequential(*(_depthwise(inp, stride) + _pointwise(inp, width) if stride > 1 else []))
        self.branch2 = nn.Sequential(
            *_pointwise(inp if stride > 1 else width, width), *_depthwise(width, stride), *_pointwise(width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.stride == 1:
            first, second = x.chunk(2, dim=1)
            return channel_shuffle(torch.cat([first, self.branch2(second)], 1), 2)
        return channel_shuffle(torch.cat([self.branch1(x), self.branch2(x)], 1), 2)


class ShuffleNetV2(nn.Module):
    def __init__(
        self, stages_out_channels: Sequence[int], stages_repeats: Sequence[int] = (4, 8, 4), num_classes: int = 1000
    ) -> None:
        super().__init__()
        width = stages_out_channels[0]
        self.conv1 = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        )
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        stages = []
        for repeats, outputs in zip(stages_repeats, stages_out_channels[1:]):
            stages.append(
                nn.Sequential(
                    InvertedResidual(width, outputs, 2),
                    *(InvertedResidual(outputs, outputs, 1) for _ in range(repeats - 1)),
                )
            )
            width = outputs
        self.stage2, self.stage3, self.stage4 = stages
        self.conv5 = nn.Sequential(*_pointwise(width, stages_out_channels[-1]))
        self.fc = nn.Linear(stages_out_channels[-1], num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stage4(self.stage3(self.stage2(self.maxpool(self.conv1(x)))))
        return self.fc(self.conv5(x).mean((2, 3)))


shufflenet_v2_x0_5 = variant("shufflenet_v2_x0_5", ShuffleNetV2, stages_out_channels=(24, 48, 96, 192, 1024))
shufflenet_v2_x1_0 = variant("shufflenet_v2_x1_0", ShuffleNetV2, stages_out_channels=(24, 116, 232, 464, 1024))
shufflenet_v2_x1_5 = variant("shufflenet_v2_x1_5", ShuffleNetV2, stages_out_channels=(24, 176, 352, 704, 1024))
shufflenet_v2_x2_0 = variant("shufflenet_v2_x2_0", ShuffleNetV2, stages_out_channels=(24, 244, 488, 976, 2048))
