"""RegNet X and Y: widths that grow linearly, quantised to stages."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import oneflow.nn as nn
from flowvision.layers.blocks.conv_norm import ConvNormActivation, SqueezeExcitation
from flowvision.models.registry import Create, variant
from oneflow import Tensor


@dataclass(frozen=True)
class BlockParams:
    """The stages in numbers: width, blocks and width of a group of each."""

    widths: tuple[int, ...]
    depths: tuple[int, ...]
    group_widths: tuple[int, ...]
    se_ratio: float = 0.0

    @classmethod
    def from_init_params(
        cls, depth: int, w_0: int, w_a: float, w_m: float, group_width: int, se_ratio: float = 0.0
    ) -> BlockParams:
        """Blocks get w_0 + w_a * i, rounded to powers of w_m and multiples of 8; equal ones are a stage, whose width is
        made a multiple of its groups'."""
        exponents = [round(math.log((w_0 + w_a * block) / w_0) / math.log(w_m)) for block in range(depth)]
        widths = [round(w_0 * w_m**exponent / 8) * 8 for exponent in exponents]
        raw = tuple(dict.fromkeys(widths))
        groups = tuple(min(group_width, width) for width in raw)
        return cls(tuple(map(_multiple, raw, groups)), tuple(map(widths.count, raw)), groups, se_ratio)


def _multiple(width: int, group: int) -> int:
    near = max(group, int(width + group / 2) // group * group)
    return near + group if near < 0.9 * width else near


class SimpleStemIN(ConvNormActivation):
    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__(width_in, width_out, 3, 2)


class BottleneckTransform(nn.Sequential):
    def __init__(self, inputs: int, width: int, stride: int, group_width: int, se_ratio: float) -> None:
        layers: OrderedDict[str, nn.Module] = OrderedDict(
            a=ConvNormActivation(inputs, width, 1),
            b=ConvNormActivation(width, width, 3, stride, width // group_width),
        )
        if se_ratio:
            layers["se"] = SqueezeExcitation(width, round(se_ratio * inputs))
        layers["c"] = ConvNormActivation(width, width, 1, activation=None)
        super().__init__(layers)


class ResBottleneckBlock(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int, group_width: int, se_ratio: float) -> None:
        super().__init__()
        self.proj = (
            ConvNormActivation(inputs, width, 1, stride, activation=None) if inputs != width or stride != 1 else None
        )
        self.f = BottleneckTransform(inputs, width, stride, group_width, se_ratio)
        self.activation = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.activation((x if self.proj is None else self.proj(x)) + self.f(x))


class AnyStage(nn.Sequential):
    """``depth`` blocks, the first of which has the stride."""

    def __init__(
        self,
        width_in: int,
        width_out: int,
        stride: int,
        depth: int,
        group_width: int,
        se_ratio: float = 0.0,
        stage_index: int = 0,
    ) -> None:
        blocks: OrderedDict[str, nn.Module] = OrderedDict()
        for number in range(depth):
            inputs, step = (width_in, stride) if number == 0 else (width_out, 1)
            blocks[f"block{stage_index}-{number}"] = ResBottleneckBlock(inputs, width_out, step, group_width, se_ratio)
        super().__init__(blocks)


class RegNet(nn.Module):
    def __init__(self, block_params: BlockParams, num_classes: int = 1000, stem_width: int = 32) -> None:
        super().__init__()
        self.stem = SimpleStemIN(3, stem_width)
        width = stem_width
        trunk: OrderedDict[str, nn.Module] = OrderedDict()
        for number, (outputs, depth, group) in enumerate(
            zip(block_params.widths, block_params.depths, block_params.group_widths), 1
        ):
            trunk[f"block{number}"] = AnyStage(width, outputs, 2, depth, group, block_params.se_ratio, number)
            width = outputs
        self.trunk_output = nn.Sequential(trunk)
        self.fc = nn.Linear(width, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.normal_(
                    module.weight,
                    0.0,
                    math.sqrt(2.0 / (module.kernel_size[0] * module.kernel_size[1] * module.out_channels)),
                )
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0.0, 0.01)
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.trunk_output(self.stem(x)).mean((2, 3)))


def _of_size(
    depth: int, w_0: int, w_a: float, w_m: float, group_width: int, se_ratio: float = 0.0, **options: Any
) -> RegNet:
    return RegNet(BlockParams.from_init_params(depth, w_0, w_a, w_m, group_width, se_ratio), **options)


def _y(name: str, depth: int, w_0: int, w_a: float, w_m: float, group_width: int) -> Create:
    return variant(name, _of_size, depth=depth, w_0=w_0, w_a=w_a, w_m=w_m, group_width=group_width, se_ratio=0.25)


def _x(name: str, depth: int, w_0: int, w_a: float, w_m: float, group_width: int) -> Create:
    return variant(name, _of_size, depth=depth, w_0=w_0, w_a=w_a, w_m=w_m, group_width=group_width)


regnet_y_400mf = _y("regnet_y_400mf", 16, 48, 27.89, 2.09, 8)
regnet_y_800mf = _y("regnet_y_800mf", 14, 56, 38.84, 2.4, 16)
regnet_y_1_6gf = _y("regnet_y_1_6gf", 27, 48, 20.71, 2.65, 24)
regnet_y_3_2gf = _y("regnet_y_3_2gf", 21, 80, 42.63, 2.66, 24)
regnet_y_8gf = _y("regnet_y_8gf", 17, 192, 76.82, 2.19, 56)
regnet_y_16gf = _y("regnet_y_16gf", 18, 200, 106.23, 2.48, 112)
regnet_y_32gf = _y("regnet_y_32gf", 20, 232, 115.89, 2.53, 232)
regnet_y_128gf = _y("regnet_y_128gf", 27, 456, 160.83, 2.52, 264)
regnet_x_400mf = _x("regnet_x_400mf", 22, 24, 24.48, 2.54, 16)
regnet_x_800mf = _x("regnet_x_800mf", 16, 56, 35.73, 2.28, 16)
regnet_x_1_6gf = _x("regnet_x_1_6gf", 18, 80, 34.01, 2.25, 24)
regnet_x_3_2gf = _x("regnet_x_3_2gf", 25, 88, 26.31, 2.25, 48)
regnet_x_8gf = _x("regnet_x_8gf", 23, 80, 49.56, 2.88, 120)
regnet_x_16gf = _x("regnet_x_16gf", 22, 216, 55.59, 2.1, 128)
regnet_x_32gf = _x("regnet_x_32gf", 23, 320, 69.86, 2.0, 168)
