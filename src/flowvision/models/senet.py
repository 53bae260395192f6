"""Squeeze-and-excitation networks: ResNets and ResNeXts whose channels are weighed, and senet154. The stride of
se_resnet stands at its first 1x1."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import oneflow.nn as nn
from flowvision.models.registry import variant
from oneflow import Tensor


class SEModule(nn.Module):
    def __init__(self, channels: int, reduction: int) -> None:
        super().__init__()
        self.fc1 = nn.Conv2d(channels, channels // reduction, 1)
        self.relu = nn.ReLU(inplace=True)
        self.fc2 = nn.Conv2d(channels // reduction, channels, 1)
        self.sigmoid = nn.Sigmoid()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.sigmoid(self.fc2(self.relu(self.fc1(x.mean((2, 3), keepdim=True)))))


class Bottleneck(nn.Module):
    """Three convolutions, the weighing of channels, the shortcut: subclasses say how wide each is."""

    expansion = 4

    def __init__(
        self, inplanes: int, planes: int, groups: int, reduction: int, stride: int, downsample: nn.Module | None
    ) -> None:
        super().__init__()
        first, second, strides, kernel = self.widths(planes, groups, stride)
        self.conv1 = nn.Conv2d(inplanes, first, 1, strides[0], bias=False)
        self.bn1 = nn.BatchNorm2d(first)
        self.conv2 = nn.Conv2d(first, second, kernel, strides[1], kernel // 2, groups=groups, bias=False)
        self.bn2 = nn.BatchNorm2d(second)
        self.conv3 = nn.Conv2d(second, planes * 4, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(planes * 4)
        self.relu = nn.ReLU(inplace=True)
        self.se_module = SEModule(planes * 4, reduction)
        self.downsample = downsample

    def widths(self, planes: int, groups: int, stride: int) -> tuple[int, int, tuple[int, int], int]:
        """Channels of the first and second convolution, their strides, the kernel of the second."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        return self.relu(self.se_module(self.bn3(self.conv3(x))) + shortcut)


class SEBottleneck(Bottleneck):
    """Of senet154."""

    def widths(self, planes: int, groups: int, stride: int) -> tuple[int, int, tuple[int, int], int]:
        return planes * 2, planes * 4, (1, stride), 3


class SEResNetBottleneck(Bottleneck):
    def widths(self, planes: int, groups: int, stride: int) -> tuple[int, int, tuple[int, int], int]:
        return planes, planes, (stride, 1), 3


class SEResNeXtBottleneck(Bottleneck):
    def widths(self, planes: int, groups: int, stride: int) -> tuple[int, int, tuple[int, int], int]:
        width = planes * 4 // 64 * groups
        return width, width, (1, stride), 3


class SENet(nn.Module):
    def __init__(
        self,
        block: type[Bottleneck],
        layers: Sequence[int],
        groups: int = 1,
        reduction: int = 16,
        dropout_p: float | None = None,
        inplanes: int = 64,
        input_3x3: bool = False,
        downsample_kernel_size: int = 1,
        num_classes: int = 1000,
    ) -> None:
        super().__init__()
        self._inplanes = inplanes
        self.layer0 = nn.Sequential(_stem(inplanes, input_3x3))
        stages = []
        for number, (count, planes) in enumerate(zip(layers, (64, 128, 256, 512))):
            kernel = 1 if number == 0 else downsample_kernel_size
            stages.append(self._stage(block, planes, count, groups, reduction, 1 if number == 0 else 2, kernel))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.avg_pool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(dropout_p) if dropout_p is not None else None
        self.last_linear = nn.Linear(512 * block.expansion, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def _stage(
        self, block: type[Bottleneck], planes: int, count: int, groups: int, reduction: int, stride: int, kernel: int
    ) -> nn.Sequential:
        out = planes * block.expansion
        conv = nn.Conv2d(self._inplanes, out, kernel, stride, kernel // 2, bias=False)
        blocks = [block(self._inplanes, planes, groups, reduction, stride, nn.Sequential(conv, nn.BatchNorm2d(out)))]
        self._inplanes = out
        blocks += [block(out, planes, groups, reduction, 1, None) for _ in range(1, count)]
        return nn.Sequential(*blocks)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer4(self.layer3(self.layer2(self.layer1(self.layer0(x)))))
        x = self.avg_pool(x).flatten(1)
        return self.last_linear(x if self.dropout is None else self.dropout(x))


def _stem(width: int, is_3x3: bool) -> OrderedDict[str, nn.Module]:
    shapes = [(3, 64, 3, 2), (64, 64, 3, 1), (64, width, 3, 1)] if is_3x3 else [(3, width, 7, 2)]
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for number, (into, out, kernel, stride) in enumerate(shapes, 1):
        layers[f"conv{number}"] = nn.Conv2d(into, out, kernel, stride, kernel // 2, bias=False)
        layers[f"bn{number}"] = nn.BatchNorm2d(out)
        layers[f"relu{number}"] = nn.ReLU(inplace=True)
    layers["pool"] = nn.MaxPool2d(3, stride=2, ceil_mode=True)
    return layers


senet154 = variant(
    "senet154",
    SENet,
    block=SEBottleneck,
    layers=(3, 8, 36, 3),
    groups=64,
    dropout_p=0.2,
    inplanes=128,
    input_3x3=True,
    downsample_kernel_size=3,
)
se_resnet50 = variant("se_resnet50", SENet, block=SEResNetBottleneck, layers=(3, 4, 6, 3))
se_resnet101 = variant("se_resnet101", SENet, block=SEResNetBottleneck, layers=(3, 4, 23, 3))
se_resnet152 = variant("se_resnet152", SENet, block=SEResNetBottleneck, layers=(3, 8, 36, 3))
se_resnext50_32x4d = variant("se_resnext50_32x4d", SENet, block=SEResNeXtBottleneck, layers=(3, 4, 6, 3), groups=32)
se_resnext101_32x4d = variant("se_resnext101_32x4d", SENet, block=SEResNeXtBottleneck, layers=(3, 4, 23, 3), groups=32)
