"""Layer norm over the channels of pictures."""

from __future__ import annotations

import oneflow.nn as nn
import oneflow.nn.functional as F
from oneflow import Tensor


class LayerNorm2d(nn.LayerNorm):
    """Normalises (batch, channels, height, width) over the channels of each pixel."""

    def __init__(self, num_channels: int, eps: float = 1e-5) -> None:
        super().__init__(num_channels, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x.permute(0, 2, 3, 1), self.normalized_shape, self.weight, self.bias, self.eps).permute(
            0, 3, 1, 2
        )
