"""Emitters of ``oneflow.engine.ops.pool``."""

from __future__ import annotations

from typing import Any

import torch

from oneflow.engine.onnx.builder import Builder, Operand, Wire
from oneflow.engine.onnx.family import Emitters
from oneflow.engine.onnx.rows.conv import channels_back, channels_first, flat_pads
from oneflow.engine.ops.padding import Pads

EMITTERS = Emitters()

Shape = tuple[int, ...]


def _pool(
    b: Builder, kind: str, x: Operand, ksize: Shape, strides: Shape, pads: Pads, channels_last: bool, **more: Any
) -> Wire:
    first = channels_first(b, x, channels_last)
    y = b.node(kind, first, kernel_shape=list(ksize), strides=list(strides), pads=flat_pads(pads), **more)
    return channels_back(b, y, x.rank, channels_last)


def max_pool(b: Builder, x: Operand, *, ksize: Shape, strides: Shape, pads: Pads, channels_last: bool = False) -> Wire:
    return _pool(b, "MaxPool", x, ksize, strides, pads, channels_last)


def avg_pool(b: Builder, x: Operand, *, ksize: Shape, strides: Shape, pads: Pads, channels_last: bool = False) -> Wire:
    """The mean of what lies inside the input: the padding is not counted."""
    return _pool(b, "AveragePool", x, ksize, strides, pads, channels_last, count_include_pad=0)


for _dims in (1, 2, 3):
    EMITTERS.add(f"nn.max_pool{_dims}d", max_pool)
    EMITTERS.add(f"nn.avg_pool{_dims}d", avg_pool)


@EMITTERS.row("layers.upsample_2d")
def upsample_2d(
    b: Builder,
    x: Operand,
    *,
    size: tuple[int, int],
    bilinear: bool,
    align_corners: bool = False,
    channels_last: bool = False,
) -> Wire:
    corners = "align_corners" if align_corners else "half_pixel"
    mode: dict[str, Any] = {"mode": "linear", "coordinate_transformation_mode": corners}
    if not bilinear:
        mode = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    scales = b.constant(torch.tensor([1, 1, *size], dtype=torch.float32))
    # Opset 11 wants a region of interest although only another mode reads it.
    roi = b.constant(torch.zeros(0, dtype=torch.float32)) if b.opset < 13 else None
    y = b.node("Resize", channels_first(b, x, channels_last), roi, scales, **mode)
    return channels_back(b, y, x.rank, channels_last)


@EMITTERS.row("nn.pixel_shuffle")
def pixel_shuffle(b: Builder, x: Operand, *, height: int, width: int) -> Wire:
    channels, h, w = x.sizes([1, 2, 3])
    blocks = b.reshape(x, [-1, channels // (height * width), height, width, h, w])
    return b.reshape_like(b.transpose(blocks, (0, 1, 4, 2, 5, 3)), b.result)
