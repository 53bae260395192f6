"""MobileNet v2: blocks that widen, filter each channel on its own, and narrow again."""

from __future__ import annotations

from typing import Any

import oneflow as flow

from .layers import Layers, Options

STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""How many times a block widens its input, its filters, blocks, and the strides of the first."""
L2 = 4e-5


def mobilenetv2(images: Any, options: Options) -> Any:
    """3,504,872 parameters."""
    layers = Layers(options, L2)
    with flow.scope.namespace("Mobilenetv2"):
        x = _conv(images, layers, "conv1", 32, 3, 2)
        number = 0
        for widen, filters, blocks, strides in STAGES:
            for block in range(blocks):
                x = _block(x, layers, f"block{number}", widen, filters, 1 if block else strides)
                number += 1
        x = _conv(x, layers, "conv_last", 1280, 1)
        x = flow.nn.dropout(layers.mean_pixel(x, "pool"), rate=0.2, name="dropout")
        return layers.dense(x, "fc", options.num_classes, kernel_initializer=flow.random_normal_initializer(0.0, 0.01))


def _conv(x: Any, layers: Layers, name: str, filters: int, kernel: int, strides: int = 1, groups: int = 1) -> Any:
    x = layers.bn(layers.conv(x, name, filters, kernel, strides, groups=groups), name)
    return flow.nn.relu6(x, name=f"{name}_relu6")


def _block(x: Any, layers: Layers, name: str, widen: int, filters: int, strides: int) -> Any:
    channels = x.shape[layers.channel_axis]
    wide = channels * widen
    out = _conv(x, layers, f"{name}_widen", wide, 1) if widen > 1 else x
    out = _conv(out, layers, f"{name}_filter", wide, 3, strides, groups=wide)
    out = layers.bn(layers.conv(out, f"{name}_narrow", filters, 1), f"{name}_narrow")
    return flow.math.add_n([out, x], name=f"{name}_add") if strides == 1 and channels == filters else out
