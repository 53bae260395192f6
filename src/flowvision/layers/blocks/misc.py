"""Batch norm that does not learn."""

from __future__ import annotations

import torch

import oneflow.nn as nn
from oneflow import Tensor


class FrozenBatchNorm2d(nn.Module):
    """Batch norm of fixed statistics and parameters, all of them buffers."""

    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, num_features: int, eps: float = 1e-05) -> None:
        super().__init__()
        self.eps = eps
        for name, make in (
            ("weight", torch.ones),
            ("bias", torch.zeros),
            ("running_mean", torch.zeros),
            ("running_var", torch.ones),
        ):
            self.register_buffer(name, make(num_features))

    def forward(self, x: Tensor) -> Tensor:
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        return x * scale.view(1, -1, 1, 1) + (self.bias - self.running_mean * scale).view(1, -1, 1, 1)
