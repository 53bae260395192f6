"""resnet_v1 and resnet_v2: the stride stands in the last unit of a block, and shortcuts that only shrink have no
parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import oneflow.nn.functional as F
from flowvision.models.slim.initializers import he
from flowvision.models.slim.layers import Norm, Style
from flowvision.models.slim.network import Body, Description, EndPoints, Layers
from flowvision.models.slim.padding import SAME, SYMMETRIC, max_pool
from oneflow import Tensor
from oneflow.engine.core.errors import ArgumentError

NORM = Norm(decay=0.997, epsilon=1e-5, scale=True)
STYLE = Style(weights=he(), norm=NORM)


@dataclass(frozen=True)
class Stride:
    """How far a unit moves: by its ``step``, or, once the output stride is reached, by holes in its filters."""

    step: int
    rate: int


def _conv_same(
    layers: Layers, x: Tensor, channels: int, kernel: int, scope: str, stride: Stride, style: Style
) -> Tensor:
    """With a step the padding is the same on both sides whatever the size, so that pictures shrink alike at every
    scale."""
    padding = SAME if stride.step == 1 else SYMMETRIC
    return layers.note(
        layers.path(scope),
        layers.conv(x, channels, kernel, scope, stride.step, style.but(padding=padding), stride.rate),
    )


def _subsample(x: Tensor, step: int) -> Tensor:
    return x if step == 1 else max_pool(x, 1, step)


def _conv(layers: Layers, x: Tensor, channels: int, scope: str, step: int, style: Style) -> Tensor:
    return layers.note(layers.path(scope), layers.conv(x, channels, 1, scope, step, style))


def _bottleneck_v1(layers: Layers, x: Tensor, channels: int, stride: Stride) -> Tensor:
    linear = layers.style.but(activation=None)
    with layers.scope("bottleneck_v1"):
        shortcut = (
            _subsample(x, stride.step)
            if x.shape[1] == 4 * channels
            else _conv(layers, x, 4 * channels, "shortcut", stride.step, linear)
        )
        y = _conv(layers, x, channels, "conv1", 1, layers.style)
        y = _conv_same(layers, y, channels, 3, "conv2", stride, layers.style)
        y = _conv(layers, y, 4 * channels, "conv3", 1, linear)
        return layers.note(layers.path(), F.relu(shortcut + y))


def _bottleneck_v2(layers: Layers, x: Tensor, channels: int, stride: Stride) -> Tensor:
    raw = layers.style.but(activation=None, norm=None)
    with layers.scope("bottleneck_v2"):
        before = F.relu(layers.batch_norm(x, "preact", NORM))
        shortcut = (
            _subsample(x, stride.step)
            if x.shape[1] == 4 * channels
            else _conv(layers, before, 4 * channels, "shortcut", stride.step, raw)
        )
        y = _conv(layers, before, channels, "conv1", 1, layers.style)
        y = _conv_same(layers, y, channels, 3, "conv2", stride, layers.style)
        y = _conv(layers, y, 4 * channels, "conv3", 1, raw)
        return layers.note(layers.path(), shortcut + y)


def _blocks(
    layers: Layers, x: Tensor, units: Sequence[int], version: int, output_stride: int | None, stores_before_stride: bool
) -> Tensor:
    """Four blocks. Once ``output_stride`` is reached, later steps widen the holes of filters instead;
    ``stores_before_stride`` takes a block's step after its end point."""
    unit_of = _bottleneck_v1 if version == 1 else _bottleneck_v2
    reached, rate = 1, 1
    for number, (count, channels) in enumerate(zip(units, (64, 128, 256, 512)), 1):
        last_step = 1 if number == 4 else 2
        with layers.scope(f"block{number}"):
            for unit in range(1, count + 1):
                step = last_step if unit == count and not stores_before_stride else 1
                with layers.scope(f"unit_{unit}"):
                    if reached == output_stride:
                        x, rate = unit_of(layers, x, channels, Stride(1, rate)), rate * step
                    else:
                        x, reached = unit_of(layers, x, channels, Stride(step, 1)), reached * step
            layers.note(layers.path(), x)
        if stores_before_stride and reached == output_stride:
            rate *= last_step
        elif stores_before_stride:
            x, reached = _subsample(x, last_step), reached * last_step
    return x


def _resnet(version: int, depth: int, units: Sequence[int]) -> Body:
    name = f"resnet_v{version}_{depth}"

    def body(
        layers: Layers,
        x: Tensor,
        num_classes: int | None,
        global_pool: bool = True,
        output_stride: int | None = None,
        spatial_squeeze: bool = True,
        store_non_strided_activations: bool = False,
    ) -> tuple[Tensor, EndPoints]:
        if output_stride not in (None, 4, 8, 16, 32):
            raise ArgumentError(f"output_stride is 4, 8, 16 or 32, got {output_stride}")
        raw = layers.style.but(activation=None, norm=None)
        with layers.scope(name):
            x = _conv_same(layers, x, 64, 7, "conv1", Stride(2, 1), layers.style if version == 1 else raw)
            x = max_pool(x, 3, 2, SAME)
            x = _blocks(layers, x, units, version, output_stride and output_stride // 4, store_non_strided_activations)
            if version == 2:
                x = F.relu(layers.batch_norm(x, "postnorm", NORM))
            if global_pool:
                x = layers.note("global_pool", x.mean((2, 3), keepdim=True))
            if not num_classes:
                return x, layers.end_points
            x = _conv(layers, x, num_classes, "logits", 1, raw)
            if spatial_squeeze and tuple(x.shape[2:]) == (1, 1):
                x = layers.note(layers.path("spatial_squeeze"), x.flatten(1))
        layers.note("predictions", F.softmax(x, 1))
        return x, layers.end_points

    return body


_UNITS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3), 200: (3, 24, 36, 3)}
NETWORKS = {
    f"resnet_v{version}_{depth}": Description(_resnet(version, depth, units), 224, 1e-4, STYLE)
    for version in (1, 2)
    for depth, units in _UNITS.items()
}
