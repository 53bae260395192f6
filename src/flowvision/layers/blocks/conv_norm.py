"""Convolution, batch norm, activation, with the names that torchvision's mobile networks give them: 0, 1 and 2."""

from __future__ import annotations

from collections.abc import Callable

import oneflow.nn as nn
from oneflow import Tensor


class ConvNormActivation(nn.Sequential):
    """``padding`` is half of the kernel unless said; ``activation`` None leaves it out."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int = 3,
        stride: int = 1,
        groups: int = 1,
        norm: Callable[[int], nn.Module] = nn.BatchNorm2d,
        activation: type[nn.Module] | None = nn.ReLU,
        dilation: int = 1,
    ) -> None:
        padding = (kernel - 1) // 2 * dilation
        layers: list[nn.Module] = [
            nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation, groups, bias=False),
            norm(outputs),
        ]
        if activation is not None:
            layers.append(activation(inplace=True))
        super().__init__(*layers)


class SqueezeExcitation(nn.Module):
    """Weighs channels by what the picture's means say; 1x1 convolutions fc1 and fc2."""

    def __init__(
        self, channels: int, squeeze: int, activation: type[nn.Module] = nn.ReLU, scale: type[nn.Module] = nn.Sigmoid
    ) -> None:
        super().__init__()
        self.fc1 = nn.Conv2d(channels, squeeze, 1)
        self.fc2 = nn.Conv2d(squeeze, channels, 1)
        self.activation, self.scale_activation = activation(), scale()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale_activation(self.fc2(self.activation(self.fc1(x.mean((2, 3), keepdim=True)))))
