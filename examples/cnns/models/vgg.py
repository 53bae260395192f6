"""VGG16 with batch normalisation."""

from __future__ import annotations

from typing import Any

import oneflow as flow

from .layers import Layers, Options

STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))


def vgg16(images: Any, options: Options) -> Any:
    """138,365,992 parameters for pictures of 224 x 224."""
    layers = Layers(options, bn_momentum=0.997, bn_epsilon=1.001e-5)
    x, number = images, 0
    for stage, (filters, count) in enumerate(STAGES):
        for _ in range(count):
            x = _conv(x, layers, f"conv{number}", filters)
            number += 1
        x = layers.max_pool(x, 2, 2, "VALID", f"pool{stage}")
    x = _hidden(layers.flat(x), layers, "fc1")
    x = _hidden(x, layers, "fc2")
    return layers.dense(
        x, "fc_final", options.num_classes, kernel_initializer=flow.random_uniform_initializer(-0.01, 0.01)
    )


def _conv(x: Any, layers: Layers, name: str, filters: int) -> Any:
    zeros = flow.zeros_initializer()
    x = layers.conv(
        x,
        name,
        filters,
        3,
        use_bias=True,
        bias_initializer=zeros,
        weight_name=f"{name}_weight",
        bias_name=f"{name}_bias",
    )
    return layers.bn_relu(x, name)


def _hidden(x: Any, layers: Layers, name: str) -> Any:
    x = layers.dense(x, name, 4096, activation=flow.nn.relu)
    return flow.nn.dropout(x, rate=0.5, name=f"{name}_dropout")
