"""MobileNet v3, large and small: inverted residuals with hard swish and weighed channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import oneflow.nn as nn
from flowvision.layers.blocks.conv_norm import ConvNormActivation, SqueezeExcitation
from flowvision.layers.helpers import make_divisible
from flowvision.models.registry import variant
from oneflow import Tensor

ConvBNActivation = ConvNormActivation  # the published name

Row = tuple[int, int, int, bool, bool, int]
Make = Callable[[int], nn.Module]
_NORM = partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)

# Kernel, expanded and output channels, weighed channels, hard swish, stride.
_LARGE: Sequence[Row] = (
    (3, 16, 16, False, False, 1),
    (3, 64, 24, False, False, 2),
    (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2),
    (5, 120, 40, True, False, 1),
    (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2),
    (3, 200, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 480, 112, True, True, 1),
    (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2),
    (5, 960, 160, True, True, 1),
    (5, 960, 160, True, True, 1),
)
_SMALL: Sequence[Row] = (
    (3, 16, 16, True, False, 2),
    (3, 72, 24, False, False, 2),
    (3, 88, 24, False, False, 1),
    (5, 96, 40, True, True, 2),
    (5, 240, 40, True, True, 1),
    (5, 240, 40, True, True, 1),
    (5, 120, 48, True, True, 1),
    (5, 144, 48, True, True, 1),
    (5, 288, 96, True, True, 2),
    (5, 576, 96, True, True, 1),
    (5, 576, 96, True, True, 1),
)


class InvertedResidualConfig:
    """One block in numbers; ``width_mult`` is taken into the channels. ``activation`` is RE for ReLU or HS for hard
    swish."""

    def __init__(
        self,
        input_channels: int,
        kernel: int,
        expanded_channels: int,
        out_channels: int,
        use_se: bool,
        activation: str,
        stride: int,
        dilation: int,
        width_mult: float,
    ) -> None:
        self.input_channels, self.expanded_channels, self.out_channels = (
            self.adjust_channels(channels, width_mult) for channels in (input_channels, expanded_channels, out_channels)
        )
        self.kernel, self.use_se, self.use_hs, self.stride, self.dilation = (
            kernel,
            use_se,
            activation == "HS",
            stride,
            dilation,
        )

    @staticmethod
    def adjust_channels(channels: int, width_mult: float) -> int:
        """Channels times the width, as a multiple of 8."""
        return make_divisible(channels * width_mult)


class InvertedResidual(nn.Module):
    def __init__(self, cnf: InvertedResidualConfig, norm_layer: Make = _NORM) -> None:
        super().__init__()
        activation = nn.Hardswish if cnf.use_hs else nn.ReLU
        layers: list[nn.Module] = []
        if cnf.expanded_channels != cnf.input_channels:
            layers.append(
                ConvNormActivation(cnf.input_channels, cnf.expanded_channels, 1, norm=norm_layer, activation=activation)
            )
        stride = cnf.stride if cnf.dilation == 1 else 1
        layers.append(
            ConvNormActivation(
                cnf.expanded_channels,
                cnf.expanded_channels,
                cnf.kernel,
                stride,
                cnf.expanded_channels,
                norm_layer,
                activation,
                cnf.dilation,
            )
        )
        if cnf.use_se:
            layers.append(
                SqueezeExcitation(
                    cnf.expanded_channels, make_divisible(cnf.expanded_channels // 4), scale=nn.Hardsigmoid
                )
            )
        layers.append(ConvNormActivation(cnf.expanded_channels, cnf.out_channels, 1, norm=norm_layer, activation=None))
        self.block = nn.Sequential(*layers)
        self.use_res_connect = cnf.stride == 1 and cnf.input_channels == cnf.out_channels

    def forward(self, x: Tensor) -> Tensor:
        return x + self.block(x) if self.use_res_connect else self.block(x)


class MobileNetV3(nn.Module):
    """``last_channel`` is the width between the two full connections."""

    def __init__(
        self,
        inverted_residual_setting: Sequence[InvertedResidualConfig],
        last_channel: int,
        num_classes: int = 1000,
        block: Callable[[InvertedResidualConfig, Make], nn.Module] = InvertedResidual,
        norm_layer: Make = _NORM,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        width = inverted_residual_setting[-1].out_channels
        self.features = nn.Sequential(
            ConvNormActivation(
                3, inverted_residual_setting[0].input_channels, 3, 2, norm=norm_layer, activation=nn.Hardswish
            ),
            *(block(cnf, norm_layer) for cnf in inverted_residual_setting),
            ConvNormActivation(width, 6 * width, 1, norm=norm_layer, activation=nn.Hardswish),
        )
        self.classifier = nn.Sequential(
            nn.Linear(6 * width, last_channel),
            nn.Hardswish(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(last_channel, num_classes),
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0, 0.01)
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean((2, 3)))


def _of_width(rows: Sequence[Row], last_channel: int, width_mult: float = 1.0, **options: Any) -> MobileNetV3:
    setting, inputs = [], 16
    for kernel, expanded, outputs, weighs, swishes, stride in rows:
        setting.append(
            InvertedResidualConfig(
                inputs, kernel, expanded, outputs, weighs, "HS" if swishes else "RE", stride, 1, width_mult
            )
        )
        inputs = outputs
    return MobileNetV3(setting, InvertedResidualConfig.adjust_channels(last_channel, width_mult), **options)


mobilenet_v3_large = variant("mobilenet_v3_large", _of_width, rows=_LARGE, last_channel=1280)
mobilenet_v3_small = variant("mobilenet_v3_small", _of_width, rows=_SMALL, last_channel=1024)
