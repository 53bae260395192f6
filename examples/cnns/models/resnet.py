"""ResNet50 v1.5, and ResNeXt50 (32x4d), which differs from it in the width and the groups of its 3 x 3 convolutions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import oneflow as flow

from .layers import Layers, Options

BLOCKS = (3, 4, 6, 3)  # of the stages 2 to 5
FILTERS = (256, 512, 1024, 2048)
L2 = 1 / 32768


def resnet50(images: Any, options: Options) -> Any:
    """25,557,032 parameters. A stage is halved by its 3 x 3 convolution, which makes it v1.5; v1 used the 1 x 1 before
    it."""
    with flow.scope.namespace("Resnet"):
        return _network(images, _Shape(Layers(options, L2), inner=(64, 128, 256, 512), groups=1), options)


def resnext50(images: Any, options: Options) -> Any:
    """25,028,904 parameters."""
    with flow.scope.namespace("Resnext"):
        return _network(images, _Shape(Layers(options, L2), inner=(128, 256, 512, 1024), groups=32), options)


@dataclass(frozen=True)
class _Shape:
    layers: Layers
    inner: tuple[int, ...]
    groups: int


def _network(images: Any, shape: _Shape, options: Options) -> Any:
    layers = shape.layers
    x = layers.bn_relu(layers.conv(images, "conv1", 64, 7, 2), "conv1")
    x = layers.max_pool(x, 3, 2, "SAME", "pool1")
    for stage, blocks in enumerate(BLOCKS):
        for block in range(blocks):
            x = _block(x, shape, stage, block)
    return layers.dense(layers.mean_pixel(x, "pool5"), "fc1001", options.num_classes)


def _block(x: Any, shape: _Shape, stage: int, block: int) -> Any:
    layers, name = shape.layers, f"res{stage + 2}_{block}"
    strides = 2 if stage and not block else 1
    shortcut = x
    if not block:
        shortcut = layers.conv(x, f"{name}_branch1", FILTERS[stage], 1, strides, "VALID")
        shortcut = layers.bn(shortcut, f"{name}_branch1")
    x = layers.bn_relu(layers.conv(x, f"{name}_branch2a", shape.inner[stage], 1, 1, "VALID"), f"{name}_branch2a")
    x = layers.conv(x, f"{name}_branch2b", shape.inner[stage], 3, strides, groups=shape.groups)
    x = layers.bn_relu(x, f"{name}_branch2b")
    x = layers.conv(x, f"{name}_branch2c", FILTERS[stage], 1, 1, "VALID")
    # Gamma 0: a block begins as its shortcut. The variance of 0 is as published; gamma hides it until it has moved.
    zeros = flow.zeros_initializer()
    return layers.bn_add_relu(
        x, shortcut, f"{name}_branch2c", gamma_initializer=zeros, moving_variance_initializer=zeros
    )
