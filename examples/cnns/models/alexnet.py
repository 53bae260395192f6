"""AlexNet of 2014 ("one weird trick"), with average pools."""

from __future__ import annotations

from typing import Any

import oneflow as flow

from .layers import Layers, Options

L2 = 5e-5


def alexnet(images: Any, options: Options) -> Any:
    """50,303,912 parameters for pictures of 224 x 224."""
    layers = Layers(options, L2)
    x = layers.avg_pool(_conv(images, layers, "conv1", 64, 11, 4, "VALID"), 3, 2, "VALID", "pool1")
    x = layers.avg_pool(_conv(x, layers, "conv2", 192, 5), 3, 2, "VALID", "pool2")
    x = _conv(x, layers, "conv3", 384, 3)
    x = _conv(x, layers, "conv4", 384, 3)
    x = layers.avg_pool(_conv(x, layers, "conv5", 256, 3), 3, 2, "VALID", "pool5")
    x = _hidden(layers.flat(x), layers, "fc1")
    x = _hidden(x, layers, "fc2")
    return layers.dense(x, "fc3", options.num_classes, kernel_initializer=flow.random_normal_initializer(0.0, 0.01))


def _conv(x: Any, layers: Layers, name: str, filters: int, kernel: int, strides: int = 1, padding: str = "SAME") -> Any:
    bias = {"use_bias": True, "bias_initializer": flow.zeros_initializer(), "bias_regularizer": layers.regularizer}
    return layers.conv(x, name, filters, kernel, strides, padding, activation=flow.nn.relu, **bias)


def _hidden(x: Any, layers: Layers, name: str) -> Any:
    x = layers.dense(x, name, 4096, activation=flow.nn.relu)
    return flow.nn.dropout(x, rate=0.5, name=f"{name}_dropout")
