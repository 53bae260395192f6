"""TensorFlow's padding: SAME puts the odd pixel at the bottom and the right, where torch's own padding is the same on
both sides."""

from __future__ import annotations

import math

import oneflow.nn.functional as F
from oneflow import Tensor

Pair = tuple[int, int]
SAME, VALID, SYMMETRIC = "SAME", "VALID", "SYMMETRIC"


def pair(value: int | Pair) -> Pair:
    return (value, value) if isinstance(value, int) else value


def same_padding(size: int, kernel: int, stride: int, dilation: int = 1) -> Pair:
    """Zeros before and after one dimension, so that ceil(size / stride) results come out."""
    total = max((-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1 - size, 0)
    return total // 2, total - total // 2


def amounts(x: Tensor, kernel: Pair, stride: Pair, padding: str, dilation: int = 1) -> tuple[Pair, Pair]:
    """(before, after) of the height and of the width. SYMMETRIC does not look at the size: the kernel's reach,
    halved."""
    if padding == VALID:
        return (0, 0), (0, 0)
    if padding == SYMMETRIC:
        reach = [(k - 1) * dilation for k in kernel]
        return (reach[0] // 2, reach[0] - reach[0] // 2), (reach[1] // 2, reach[1] - reach[1] // 2)
    height, width = x.shape[2:]
    return same_padding(height, kernel[0], stride[0], dilation), same_padding(width, kernel[1], stride[1], dilation)


def for_conv(x: Tensor, kernel: Pair, stride: Pair, padding: str, dilation: int) -> tuple[Tensor, Pair]:
    """The input and the padding to convolve it with: padding that differs between the sides is written out."""
    (top, bottom), (left, right) = amounts(x, kernel, stride, padding, dilation)
    if (top, left) == (bottom, right):
        return x, (top, left)
    return F.pad(x, (left, right, top, bottom)), (0, 0)


def max_pool(x: Tensor, kernel: int | Pair, stride: int | Pair = 2, padding: str = VALID) -> Tensor:
    """slim's ``max_pool2d``: padding never wins."""
    kernel, stride = pair(kernel), pair(stride)
    (top, bottom), (left, right) = amounts(x, kernel, stride, padding)
    if _is_torchs((top, bottom), (left, right), stride):
        return F.max_pool2d(x, kernel, stride, (top, left), ceil_mode=(top, left) != (bottom, right))
    return F.max_pool2d(F.pad(x, (left, right, top, bottom), value=-math.inf), kernel, stride)


def avg_pool(x: Tensor, kernel: int | Pair, stride: int | Pair = 2, padding: str = VALID) -> Tensor:
    """slim's ``avg_pool2d``: padding does not count, in the sum or in the divisor."""
    kernel, stride = pair(kernel), pair(stride)
    (top, bottom), (left, right) = amounts(x, kernel, stride, padding)
    if _is_torchs((top, bottom), (left, right), stride):
        return F.avg_pool2d(
            x, kernel, stride, (top, left), ceil_mode=(top, left) != (bottom, right), count_include_pad=False
        )
    around = (left, right, top, bottom)
    inside = F.avg_pool2d(F.pad(x.new_ones(1, 1, *x.shape[2:]), around), kernel, stride)
    return F.avg_pool2d(F.pad(x, around), kernel, stride) / inside


def _is_torchs(height: Pair, width: Pair, stride: Pair) -> bool:
    """Whether torch can pool so without a copy: one pixel more behind than before is a last window that leaves the
    picture."""
    if height[0] == height[1] and width[0] == width[1]:
        return True
    return (
        all(before == after or step > after - before for (before, after), step in zip((height, width), stride))
        and min(stride) > 1
    )
