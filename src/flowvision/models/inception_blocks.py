"""What GoogLeNet and Inception v3 share."""

from __future__ import annotations

from typing import Any

import oneflow.nn as nn
import oneflow.nn.functional as F
from oneflow import Tensor


class BasicConv2d(nn.Module):
    """Convolution, batch norm, ReLU."""

    def __init__(self, in_channels: int, out_channels: int, **options: Any) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, bias=False, **options)
        self.bn = nn.BatchNorm2d(out_channels, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv(x)), inplace=True)


def transformed(x: Tensor) -> Tensor:
    """Pictures normalised by ImageNet's statistics, as the converted weights of TensorFlow expect them: between -1 and
    1."""
    scale = x.new_tensor([0.229 / 0.5, 0.224 / 0.5, 0.225 / 0.5]).view(1, 3, 1, 1)
    shift = x.new_tensor([(0.485 - 0.5) / 0.5, (0.456 - 0.5) / 0.5, (0.406 - 0.5) / 0.5]).view(1, 3, 1, 1)
    return x * scale + shift


def init_truncated(model: nn.Module) -> None:
    """Truncated normal weights; a module may say its own ``stddev``."""
    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            stddev = float(getattr(module, "stddev", 0.1))
            nn.init.trunc_normal_(module.weight, mean=0.0, std=stddev, a=-2, b=2)
