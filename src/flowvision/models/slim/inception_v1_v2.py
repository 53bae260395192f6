"""inception_v1 and inception_v2: every layer pads SAME, and there is one classifier."""

from __future__ import annotations

from typing import Any

from flowvision.models.slim.inception_blocks import (
    NORM,
    Branches,
    Conv,
    Pool,
    chain,
    full_size,
    linear,
    mixed,
    pooled,
    predicted,
    squeezed,
)
from flowvision.models.slim.initializers import he, truncated_normal
from flowvision.models.slim.layers import Style
from flowvision.models.slim.network import Description, EndPoints, Layers
from flowvision.models.slim.padding import SAME, avg_pool, max_pool
from oneflow import Tensor
from oneflow.engine.core.errors import ArgumentError

# Name, then the channels of: 1x1; 1x1 and 3x3; 1x1 and 3x3; 1x1 after a pool. A pool has its kernel alone.
_V1: tuple[tuple[Any, ...], ...] = (
    ("Mixed_3b", 64, (96, 128), (16, 32), 32),
    ("Mixed_3c", 128, (128, 192), (32, 96), 64),
    ("MaxPool_4a_3x3", 3),
    ("Mixed_4b", 192, (96, 208), (16, 48), 64),
    ("Mixed_4c", 160, (112, 224), (24, 64), 64),
    ("Mixed_4d", 128, (128, 256), (24, 64), 64),
    ("Mixed_4e", 112, (144, 288), (32, 64), 64),
    ("Mixed_4f", 256, (160, 320), (32, 128), 128),
    ("MaxPool_5a_2x2", 2),
    ("Mixed_5b", 256, (160, 320), (32, 128), 128),
    ("Mixed_5c", 384, (192, 384), (48, 128), 128),
)


def inception_v1(
    layers: Layers,
    x: Tensor,
    num_classes: int | None,
    dropout_keep_prob: float = 0.8,
    spatial_squeeze: bool = True,
    global_pool: bool = False,
) -> tuple[Tensor, EndPoints]:
    note, style = layers.note, layers.style
    layers.style = style.but(weights=truncated_normal(0.01))
    with layers.scope("InceptionV1"):
        x = note("Conv2d_1a_7x7", layers.conv(x, 64, 7, "Conv2d_1a_7x7", 2))
        x = note("MaxPool_2a_3x3", max_pool(x, 3, 2, SAME))
        x = note("Conv2d_2b_1x1", layers.conv(x, 64, 1, "Conv2d_2b_1x1"))
        x = note("Conv2d_2c_3x3", layers.conv(x, 192, 3, "Conv2d_2c_3x3"))
        x = note("MaxPool_3a_3x3", max_pool(x, 3, 2, SAME))
        for name, *widths in _V1:
            if len(widths) == 1:
                x = note(name, max_pool(x, widths[0], 2, SAME))
                continue
            with layers.scope(name):
                x = note(name, mixed(layers, x, _v1_branches(name, *widths)))
        layers.style = style
        with layers.scope("Logits"):
            if global_pool:
                x = note("global_pool", x.mean((2, 3), keepdim=True))
            else:
                x = note("AvgPool_0a_7x7", avg_pool(x, full_size(x, 7), 1))
            if not num_classes:
                return x, layers.end_points
            x = layers.conv(layers.dropout(x, dropout_keep_prob), num_classes, 1, "Conv2d_0c_1x1", style=linear(style))
            return predicted(layers, squeezed(x, spatial_squeeze))


def _v1_branches(name: str, first: int, second: tuple[int, int], third: tuple[int, int], last: int) -> Branches:
    # One layer of slim's has another letter than its place, and the released weights have it too.
    odd = "Conv2d_0a_3x3" if name == "Mixed_5b" else "Conv2d_0b_3x3"
    return (
        chain([first], [1]),
        chain(second, (1, 3)),
        [Conv("Conv2d_0a_1x1", third[0]), Conv(odd, third[1], 3)],
        pooled(True, last),
    )


# Name, then the channels of: 1x1; 1x1 and 3x3; 1x1, 3x3 and 3x3; 1x1 after a pool.
_V2: tuple[tuple[Any, ...], ...] = (
    ("Mixed_3b", 64, (64, 64), (64, 96, 96), 32),
    ("Mixed_3c", 64, (64, 96), (64, 96, 96), 64),
    ("Mixed_4a", (128, 160), (64, 96, 96)),  # halves the picture
    ("Mixed_4b", 224, (64, 96), (96, 128, 128), 128),
    ("Mixed_4c", 192, (96, 128), (96, 128, 128), 128),
    ("Mixed_4d", 160, (128, 160), (128, 160, 160), 96),
    ("Mixed_4e", 96, (128, 192), (160, 192, 192), 96),
    ("Mixed_5a", (128, 192), (192, 256, 256)),
    ("Mixed_5b", 352, (192, 320), (160, 224, 224), 128),
    ("Mixed_5c", 352, (192, 320), (192, 224, 224), 128),
)


def inception_v2(
    layers: Layers,
    x: Tensor,
    num_classes: int | None,
    dropout_keep_prob: float = 0.8,
    min_depth: int = 16,
    depth_multiplier: float = 1.0,
    spatial_squeeze: bool = True,
    global_pool: bool = False,
) -> tuple[Tensor, EndPoints]:
    if depth_multiplier <= 0:
        raise ArgumentError(f"depth_multiplier is greater than 0, got {depth_multiplier}")
    note = layers.note

    def depth(channels: int) -> int:
        return max(int(channels * depth_multiplier), min_depth)

    with layers.scope("InceptionV2"):
        # slim's norm and weight decay are said of plain convolutions only, so the separable one has neither.
        stem = Style(weights=truncated_normal(1.0), regularizes_weights=False)
        multiplier = min(int(depth(64) / x.shape[1]), 8)
        x = note("Conv2d_1a_7x7", layers.separable_conv(x, depth(64), 7, "Conv2d_1a_7x7", 2, multiplier, stem))
        x = note("MaxPool_2a_3x3", max_pool(x, 3, 2, SAME))
        x = note(
            "Conv2d_2b_1x1",
            layers.conv(x, depth(64), 1, "Conv2d_2b_1x1", style=layers.style.but(weights=truncated_normal(0.1))),
        )
        x = note("Conv2d_2c_3x3", layers.conv(x, depth(192), 3, "Conv2d_2c_3x3"))
        x = note("MaxPool_3a_3x3", max_pool(x, 3, 2, SAME))
        for name, *widths in _V2:
            scaled: list[Any] = [
                depth(width) if isinstance(width, int) else [depth(each) for each in width] for width in widths
            ]
            branches = _v2_reduction(*scaled) if len(scaled) == 2 else _v2_branches(name, *scaled)
            with layers.scope(name):
                x = note(name, mixed(layers, x, branches))
        with layers.scope("Logits"):
            if global_pool:
                x = note("global_pool", x.mean((2, 3), keepdim=True))
            else:
                x = note("AvgPool_1a", avg_pool(x, full_size(x, 7), 2))
            if not num_classes:
                return x, layers.end_points
            x = note("PreLogits", layers.dropout(x, dropout_keep_prob))
            x = layers.conv(x, num_classes, 1, "Conv2d_1c_1x1", style=linear(layers.style))
            return predicted(layers, squeezed(x, spatial_squeeze))


def _v2_branches(name: str, first: int, second: list[int], third: list[int], last: int) -> Branches:
    opens = truncated_normal(0.09)
    return (
        chain([first], [1]),
        [Conv("Conv2d_0a_1x1", second[0], weights=opens), Conv("Conv2d_0b_3x3", second[1], 3)],
        [Conv("Conv2d_0a_1x1", third[0], weights=opens), *chain([0, *third[1:]], (1, 3, 3))[1:]],
        pooled(name == "Mixed_5c", last, truncated_normal(0.1)),
    )


def _v2_reduction(first: list[int], second: list[int]) -> Branches:
    opens = truncated_normal(0.09)
    return (
        [Conv("Conv2d_0a_1x1", first[0], weights=opens), Conv("Conv2d_1a_3x3", first[1], 3, 2)],
        [
            Conv("Conv2d_0a_1x1", second[0], weights=opens),
            Conv("Conv2d_0b_3x3", second[1], 3),
            Conv("Conv2d_1a_3x3", second[2], 3, 2),
        ],
        [Pool(True, 2)],
    )


NETWORKS = {
    "inception_v1": Description(inception_v1, 224, 4e-5, Style(weights=he(), norm=NORM)),
    "inception_v2": Description(inception_v2, 224, 4e-5, Style(weights=he(), norm=NORM)),
}
