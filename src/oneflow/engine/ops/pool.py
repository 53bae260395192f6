"""Pools, and the ops that make images larger."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import torch
import torch.nn.functional as F
from torch import Tensor

from oneflow.engine.ops import padding
from oneflow.engine.ops.conv import channels_back, channels_first
from oneflow.engine.ops.elementwise import require_float
from oneflow.engine.ops.padding import Pads
from oneflow.engine.ops.row import Family, Op, require

ROWS = Family()

Shape = tuple[int, ...]


def _native(pads: Pads, sizes: Shape, ksize: Shape, strides: Shape) -> tuple[Shape, bool] | None:
    """torch's own (padding, ceil_mode) that gives the same windows, or None if torch cannot express them."""
    both = tuple(b for b, _ in pads)
    if any(b > k // 2 for b, k in zip(both, ksize)):
        return None
    if padding.symmetric(pads, sizes, ksize, strides) is not None:
        return both, False
    # only native where padding.ceiled of the symmetric pads is what was asked for
    return (both, True) if padding.ceiled(tuple((b, b) for b in both), sizes, ksize, strides) == pads else None


def _require_pool(x: Tensor, dims: int, pads: Pads, ksize: Shape, strides: Shape) -> None:
    require(require_float(x).dim() == dims + 2, f"the input has rank {x.dim()}, expected {dims + 2}")
    padding.require_windows(pads, tuple(x.shape[2:]), ksize, strides)
    for k, pair in zip(ksize, pads):
        require(max(pair) < k, f"a pool of {k} padded by {pair} would have windows of nothing but padding")


def _max(dims: int, function: Callable[..., Tensor]) -> Op:
    def compute(x: Tensor, *, ksize: Shape, strides: Shape, pads: Pads, channels_last: bool = False) -> Tensor:
        x = channels_first(x, channels_last)
        _require_pool(x, dims, pads, ksize, strides)
        native = _native(pads, tuple(x.shape[2:]), ksize, strides)
        if native is None:
            return channels_back(function(padding.pad(x, pads, -inf), ksize, strides), channels_last)
        return channels_back(function(x, ksize, strides, native[0], ceil_mode=native[1]), channels_last)

    return ROWS.add(f"nn.max_pool{dims}d", compute, precision="clear")


def _avg(dims: int, function: Callable[..., Tensor]) -> Op:
    def compute(x: Tensor, *, ksize: Shape, strides: Shape, pads: Pads, channels_last: bool = False) -> Tensor:
        x = channels_first(x, channels_last)
        _require_pool(x, dims, pads, ksize, strides)
        native = _native(pads, tuple(x.shape[2:]), ksize, strides)
        if native is None:
            # the mean of padded ones is the part of each window that is not padding
            covered = function(padding.pad(torch.ones_like(x[:1, :1]), pads), ksize, strides)
            return channels_back(function(padding.pad(x, pads), ksize, strides) / covered, channels_last)
        return channels_back(function(x, ksize, strides, native[0], native[1], False), channels_last)

    return ROWS.add(f"nn.avg_pool{dims}d", compute, precision="gray")


max_pool1d = _max(1, F.max_pool1d)
max_pool2d = _max(2, F.max_pool2d)
max_pool3d = _max(3, F.max_pool3d)
avg_pool1d = _avg(1, F.avg_pool1d)
avg_pool2d = _avg(2, F.avg_pool2d)
avg_pool3d = _avg(3, F.avg_pool3d)


@ROWS.op("layers.upsample_2d")
def upsample_2d(
    x: Tensor, *, size: tuple[int, int], bilinear: bool, align_corners: bool = False, channels_last: bool = False
) -> Tensor:
    """Images ``size`` times as large."""
    x = channels_first(x, channels_last)
    require(require_float(x).dim() == 4, f"the input has rank {x.dim()}, expected 4")
    target = [x.shape[2] * size[0], x.shape[3] * size[1]]
    y = (
        F.interpolate(x, target, mode="bilinear", align_corners=align_corners)
        if bilinear
        else F.interpolate(x, target, mode="nearest")
    )
    return channels_back(y, channels_last)


@ROWS.op("nn.pixel_shuffle", precision="clear")
def pixel_shuffle(x: Tensor, *, height: int, width: int) -> Tensor:
    """(N, C·height·width, H, W) to (N, C, H·height, W·width)."""
    require(x.dim() == 4, f"the input has rank {x.dim()}, expected 4")
    n, c, h, w = x.shape
    require(c % (height * width) == 0, f"{c} channels cannot be divided into blocks of {height} x {width}")
    blocks = x.reshape(n, c // (height * width), height, width, h, w)
    return blocks.permute(0, 1, 4, 2, 5, 3).reshape(n, c // (height * width), h * height, w * width)
