"""ResNet, ResNeXt and Wide ResNet; the stride of a bottleneck stands at its 3x3 (v1.5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import oneflow.nn as nn
from flowvision.models.registry import variant
from oneflow import Tensor
from oneflow.engine.core.errors import ArgumentError

Norm = Callable[[int], nn.Module]


def conv3x3(in_planes: int, out_planes: int, stride: int = 1, groups: int = 1, dilation: int = 1) -> nn.Conv2d:
    return nn.Conv2d(in_planes, out_planes, 3, stride, dilation, dilation, groups, bias=False)


def conv1x1(in_planes: int, out_planes: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(in_planes, out_planes, 1, stride, bias=False)


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        groups: int = 1,
        base_width: int = 64,
        dilation: int = 1,
        norm_layer: Norm | None = None,
    ) -> None:
        super().__init__()
        norm_layer = norm_layer or nn.BatchNorm2d
        if groups != 1 or base_width != 64 or dilation != 1:
            raise ArgumentError(
                f"BasicBlock has groups=1, base_width=64 and dilation=1, got {groups}, {base_width} and {dilation}; "
                f"Bottleneck takes others"
            )
        self.conv1, self.bn1 = conv3x3(inplanes, planes, stride), norm_layer(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2, self.bn2 = conv3x3(planes, planes), norm_layer(planes)
        self.downsample = downsample

    @property
    def last_norm(self) -> nn.Module:
        return self.bn2

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        groups: int = 1,
        base_width: int = 64,
        dilation: int = 1,
        norm_layer: Norm | None = None,
    ) -> None:
        super().__init__()
        norm_layer = norm_layer or nn.BatchNorm2d
        width = int(planes * (base_width / 64.0)) * groups
        self.conv1, self.bn1 = conv1x1(inplanes, width), norm_layer(width)
        self.conv2, self.bn2 = conv3x3(width, width, stride, groups, dilation), norm_layer(width)
        self.conv3, self.bn3 = conv1x1(width, planes * self.expansion), norm_layer(planes * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample

    @property
    def last_norm(self) -> nn.Module:
        return self.bn3

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))))
        out = self.bn3(self.conv3(out))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """``replace_stride_with_dilation`` keeps the maps of stages 2 to 4 large; ``zero_init_residual`` begins every block
    as the identity."""

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        layers: Sequence[int],
        num_classes: int = 1000,
        zero_init_residual: bool = False,
        groups: int = 1,
        width_per_group: int = 64,
        replace_stride_with_dilation: Sequence[bool] | None = None,
        norm_layer: Norm | None = None,
    ) -> None:
        super().__init__()
        norm_layer, dilated = norm_layer or nn.BatchNorm2d, replace_stride_with_dilation or (False, False, False)
        self._norm, self._inplanes, self._dilation = norm_layer, 64, 1
        self._groups, self._base_width = groups, width_per_group
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = norm_layer(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = self._stage(block, 64, layers[0], 1, False)
        self.layer2 = self._stage(block, 128, layers[1], 2, dilated[0])
        self.layer3 = self._stage(block, 256, layers[2], 2, dilated[1])
        self.layer4 = self._stage(block, 512, layers[3], 2, dilated[2])
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512 * block.expansion, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif (
                zero_init_residual
                and isinstance(module, (BasicBlock, Bottleneck))
                and isinstance(module.last_norm, nn.BatchNorm2d)
            ):
                nn.init.zeros_(module.last_norm.weight)

    def _stage(
        self, block: type[BasicBlock] | type[Bottleneck], planes: int, blocks: int, stride: int, dilate: bool
    ) -> nn.Sequential:
        before = self._dilation
        if dilate:
            self._dilation, stride = self._dilation * stride, 1
        out = planes * block.expansion
        downsample = None
        if stride != 1 or self._inplanes != out:
            downsample = nn.Sequential(conv1x1(self._inplanes, out, stride), self._norm(out))
        layers: list[nn.Module] = [
            block(self._inplanes, planes, stride, downsample, self._groups, self._base_width, before, self._norm)
        ]
        self._inplanes = out
        layers += [
            block(out, planes, 1, None, self._groups, self._base_width, self._dilation, self._norm)
            for _ in range(1, blocks)
        ]
        return nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


_50, _101 = (3, 4, 6, 3), (3, 4, 23, 3)
resnet18 = variant("resnet18", ResNet, block=BasicBlock, layers=(2, 2, 2, 2))
resnet34 = variant("resnet34", ResNet, block=BasicBlock, layers=(3, 4, 6, 3))
resnet50 = variant("resnet50", ResNet, block=Bottleneck, layers=_50)
resnet101 = variant("resnet101", ResNet, block=Bottleneck, layers=_101)
resnet152 = variant("resnet152", ResNet, block=Bottleneck, layers=(3, 8, 36, 3))
resnext50_32x4d = variant("resnext50_32x4d", ResNet, block=Bottleneck, layers=_50, groups=32, width_per_group=4)
resnext101_32x8d = variant("resnext101_32x8d", ResNet, block=Bottleneck, layers=_101, groups=32, width_per_group=8)
wide_resnet50_2 = variant("wide_resnet50_2", ResNet, block=Bottleneck, layers=_50, width_per_group=128)
wide_resnet101_2 = variant("wide_resnet101_2", ResNet, block=Bottleneck, layers=_101, width_per_group=128)
