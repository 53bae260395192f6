"""Dynamic convolution: each picture mixes its own kernel from several."""

from __future__ import annotations

import torch

import oneflow.nn as nn
import oneflow.nn.functional as F
from oneflow import Tensor


class attention2d(nn.Module):
    """How much of each of ``K`` kernels a picture takes; a high ``temperature`` makes it even."""

    def __init__(self, in_planes: int, ratios: float, K: int, temperature: int) -> None:
        super().__init__()
        hidden = int(in_planes * ratios) + 1 if in_planes != 3 else K
        self.fc1 = nn.Conv2d(in_planes, hidden, 1, bias=False)
        self.fc2 = nn.Conv2d(hidden, K, 1, bias=True)
        self.temperature = temperature
        for conv in (self.fc1, self.fc2):
            nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
        if self.fc2.bias is not None:
            nn.init.zeros_(self.fc2.bias)

    def update_temperature(self) -> None:
        """Three less, down to one: called once an epoch."""
        self.temperature = max(1, self.temperature - 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc2(F.relu(self.fc1(x.mean((2, 3), keepdim=True)))).flatten(1)
        return (y / self.temperature).softmax(1)


class Dynamic_conv2d(nn.Module):
    """``nn.Conv2d`` with ``K`` kernels."""

    def __init__(
        self,
        in_planes: int,
        out_planes: int,
        kernel_size: int,
        ratio: float = 0.25,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        K: int = 4,
        temperature: int = 34,
    ) -> None:
        super().__init__()
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        self.attention = attention2d(in_planes, ratio, K, temperature)
        self.weight = nn.Parameter(torch.empty(K, out_planes, in_planes // groups, kernel_size, kernel_size))
        self.bias = nn.Parameter(torch.zeros(K, out_planes)) if bias else None
        for kernel in self.weight.unbind(0):
            nn.init.kaiming_uniform_(kernel)

    def update_temperature(self) -> None:
        """Makes the choice of kernels sharper: called once an epoch."""
        self.attention.update_temperature()

    def forward(self, x: Tensor) -> Tensor:
        mix = self.attention(x)
        batch = x.shape[0]
        kernels = torch.matmul(mix, self.weight.flatten(1)).view(-1, *self.weight.shape[2:])
        bias = None if self.bias is None else torch.matmul(mix, self.bias).flatten()
        # One group of the convolution for each picture, so that each has its own kernel.
        y = F.conv2d(
            x.reshape(1, -1, *x.shape[2:]), kernels, bias, self.stride, self.padding, self.dilation, self.groups * batch
        )
        return y.view(batch, -1, *y.shape[2:])
