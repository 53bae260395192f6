"""DropBlock: squares of a map dropped together."""

from __future__ import annotations

import torch

import oneflow.nn as nn
import oneflow.nn.functional as F
from oneflow import Tensor


class DropBlock(nn.Module):
    """While it trains, drops squares of ``block_size`` so that about ``p`` of the pixels go, and scales the rest to
    keep the sum."""

    def __init__(self, block_size: int = 7, p: float = 0.5) -> None:
        super().__init__()
        self.block_size, self.p = block_size, p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        height, width = x.shape[2:]
        block = min(self.block_size, height, width)
        # The share of centres for which the squares around them cover p of the map.
        gamma = self.p / block**2 * (height * width) / ((height - block + 1) * (width - block + 1))
        centres = (torch.rand(x.shape[0], x.shape[1], height, width, device=x.device) < gamma).to(x.dtype)
        dropped = F.max_pool2d(centres, block, 1, block // 2)[:, :, :height, :width]
        kept = 1 - dropped
        return x * kept * (kept.numel() / kept.sum().clamp(min=1))
