"""A convolution with TensorFlow's SAME padding."""

from __future__ import annotations

from typing import Any

import oneflow.nn as nn
import oneflow.nn.functional as F
from flowvision.layers.blocks.padding import get_padding_value, pad_same
from oneflow import Tensor

Pair = tuple[int, int]


def conv2d_same(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = (1, 1),
    padding: Pair = (0, 0),
    dilation: Pair = (1, 1),
    groups: int = 1,
) -> Tensor:
    """``padding`` is not looked at: SAME says how much."""
    kernel = weight.shape[2], weight.shape[3]
    return F.conv2d(pad_same(x, kernel, stride, dilation), weight, bias, stride, (0, 0), dilation, groups)


class Conv2dSame(nn.Conv2d):
    """``nn.Conv2d`` whose padding is SAME, whatever ``padding`` says."""

    def forward(self, x: Tensor) -> Tensor:
        stride, dilation = (self.stride[0], self.stride[1]), (self.dilation[0], self.dilation[1])
        return conv2d_same(x, self.weight, self.bias, stride, (0, 0), dilation, self.groups)


def create_conv2d_pad(in_chs: int, out_chs: int, kernel_size: int, **kwargs: Any) -> nn.Conv2d:
    """A convolution whose ``padding`` is a number, "same", "valid" or "" (symmetric)."""
    padding = kwargs.pop("padding", "")
    bias = kwargs.pop("bias", False)
    shape = {key: kwargs[key] for key in ("stride", "dilation") if key in kwargs}
    amount, is_dynamic = get_padding_value(padding, kernel_size, **shape)
    if is_dynamic:
        return Conv2dSame(in_chs, out_chs, kernel_size, bias=bias, **kwargs)
    return nn.Conv2d(in_chs, out_chs, kernel_size, padding=amount, bias=bias, **kwargs)
