"""Inception v3, made for pictures of 299 x 299; without the auxiliary head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import oneflow as flow

from .layers import Layers, Options


def inceptionv3(images: Any, options: Options) -> Any:
    """23,834,568 parameters."""
    layers = Layers(options, bn_epsilon=0.001)
    with flow.scope.namespace("InceptionV3"):
        x = _stem(images, layers)
        for number, pooled in enumerate((32, 64, 64)):
            x = _grid35(_Block(layers, f"mixed{number}"), x, pooled)
        x = _to_17(_Block(layers, "mixed3"), x)
        for number, width in enumerate((128, 160, 160, 192), 4):
            x = _grid17(_Block(layers, f"mixed{number}"), x, width)
        x = _to_8(_Block(layers, "mixed8"), x)
        for number in (9, 10):
            x = _grid8(_Block(layers, f"mixed{number}"), x)
        x = flow.nn.dropout(layers.mean_pixel(x, "pool"), rate=0.5, name="dropout")
        return layers.dense(
            x, "fc", options.num_classes, kernel_initializer=flow.truncated_normal_initializer(0.0, 0.1)
        )


@dataclass(frozen=True)
class _Block:
    """A mixed block: several branches over one input, joined by their channels."""

    layers: Layers
    name: str

    def conv(
        self,
        x: Any,
        what: str,
        filters: int,
        kernel: int | tuple[int, int] = 1,
        strides: int = 1,
        padding: str = "SAME",
    ) -> Any:
        return _conv(x, self.layers, f"{self.name}_{what}", filters, kernel, strides, padding)

    def mean(self, x: Any) -> Any:
        return self.layers.avg_pool(x, 3, 1, "SAME", f"{self.name}_mean")

    def halved(self, x: Any) -> Any:
        return self.layers.max_pool(x, 3, 2, "VALID", f"{self.name}_pool")

    def join(self, *branches: Any) -> Any:
        return self.layers.concat(branches, f"{self.name}_concat")


def _conv(
    x: Any,
    layers: Layers,
    name: str,
    filters: int,
    kernel: int | tuple[int, int],
    strides: int = 1,
    padding: str = "SAME",
) -> Any:
    return layers.bn_relu(layers.conv(x, name, filters, kernel, strides, padding), name)


def _stem(x: Any, layers: Layers) -> Any:
    x = _conv(x, layers, "conv1", 32, 3, 2, "VALID")
    x = _conv(x, layers, "conv2", 32, 3, 1, "VALID")
    x = _conv(x, layers, "conv3", 64, 3)
    x = layers.max_pool(x, 3, 2, "VALID", "pool1")
    x = _conv(x, layers, "conv4", 80, 1)
    x = _conv(x, layers, "conv5", 192, 3, 1, "VALID")
    return layers.max_pool(x, 3, 2, "VALID", "pool2")


def _grid35(block: _Block, x: Any, pooled: int) -> Any:
    single = block.conv(x, "1x1", 64)
    five = block.conv(block.conv(x, "5x5_a", 48), "5x5_b", 64, 5)
    twice = block.conv(block.conv(x, "3x3_a", 64), "3x3_b", 96, 3)
    twice = block.conv(twice, "3x3_c", 96, 3)
    return block.join(single, five, twice, block.conv(block.mean(x), "pool_1x1", pooled))


def _to_17(block: _Block, x: Any) -> Any:
    once = block.conv(x, "3x3", 384, 3, 2, "VALID")
    twice = block.conv(block.conv(x, "twice_a", 64), "twice_b", 96, 3)
    twice = block.conv(twice, "twice_c", 96, 3, 2, "VALID")
    return block.join(once, twice, block.halved(x))


def _grid17(block: _Block, x: Any, width: int) -> Any:
    single = block.conv(x, "1x1", 192)
    seven = block.conv(block.conv(x, "7x7_a", width), "7x7_b", width, (1, 7))
    seven = block.conv(seven, "7x7_c", 192, (7, 1))
    twice = block.conv(block.conv(x, "twice_a", width), "twice_b", width, (7, 1))
    twice = block.conv(block.conv(twice, "twice_c", width, (1, 7)), "twice_d", width, (7, 1))
    twice = block.conv(twice, "twice_e", 192, (1, 7))
    return block.join(single, seven, twice, block.conv(block.mean(x), "pool_1x1", 192))


def _to_8(block: _Block, x: Any) -> Any:
    three = block.conv(block.conv(x, "3x3_a", 192), "3x3_b", 320, 3, 2, "VALID")
    seven = block.conv(block.conv(x, "7x7_a", 192), "7x7_b", 192, (1, 7))
    seven = block.conv(block.conv(seven, "7x7_c", 192, (7, 1)), "7x7_d", 192, 3, 2, "VALID")
    return block.join(three, seven, block.halved(x))


def _grid8(block: _Block, x: Any) -> Any:
    single = block.conv(x, "1x1", 320)
    three = block.conv(x, "3x3_a", 384)
    twice = block.conv(block.conv(x, "twice_a", 448), "twice_b", 384, 3)
    pairs = [
        block.conv(branch, f"{name}_{size[0]}x{size[1]}", 384, size)
        for name, branch in (("3x3", three), ("twice", twice))
        for size in ((1, 3), (3, 1))
    ]
    return block.join(single, *pairs, block.conv(block.mean(x), "pool_1x1", 192))
