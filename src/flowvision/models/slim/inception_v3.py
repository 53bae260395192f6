"""inception_v3, with its auxiliary classifier."""

from __future__ import annotations

from flowvision.models.slim.inception_blocks import (
    NORM,
    Branches,
    Conv,
    Fork,
    Pool,
    Step,
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
from flowvision.models.slim.padding import SAME, VALID, avg_pool, max_pool
from oneflow import Tensor
from oneflow.engine.core.errors import ArgumentError


def stem(layers: Layers, x: Tensor, depth: list[int], padding: str = VALID) -> Tensor:
    """The seven layers that inception_v3 and inception_resnet_v2 begin with; ``depth`` has the channels of the five
    convolutions."""
    note, style = layers.note, layers.style.but(padding=padding)
    x = note("Conv2d_1a_3x3", layers.conv(x, depth[0], 3, "Conv2d_1a_3x3", 2, style))
    x = note("Conv2d_2a_3x3", layers.conv(x, depth[1], 3, "Conv2d_2a_3x3", 1, style))
    x = note("Conv2d_2b_3x3", layers.conv(x, depth[2], 3, "Conv2d_2b_3x3"))
    x = note("MaxPool_3a_3x3", max_pool(x, 3, 2, padding))
    x = note("Conv2d_3b_1x1", layers.conv(x, depth[3], 1, "Conv2d_3b_1x1", 1, style))
    x = note("Conv2d_4a_3x3", layers.conv(x, depth[4], 3, "Conv2d_4a_3x3", 1, style))
    return note("MaxPool_5a_3x3", max_pool(x, 3, 2, padding))


def _blocks(depth_multiplier: float, min_depth: int) -> dict[str, Branches]:
    def d(channels: int) -> int:
        return max(int(channels * depth_multiplier), min_depth)

    def small(last: int, second: tuple[str, str]) -> Branches:
        five = [Conv(second[0], d(48)), Conv(second[1], d(64), 5)]
        return chain([d(64)], [1]), five, chain([d(64), d(96), d(96)], (1, 3, 3)), pooled(False, d(last))

    def seven(c: int) -> Branches:
        return (
            chain([d(192)], [1]),
            chain([d(c), d(c), d(192)], (1, (1, 7), (7, 1))),
            chain([d(c), d(c), d(c), d(c), d(192)], (1, (7, 1), (1, 7), (7, 1), (1, 7))),
            pooled(False, d(192)),
        )

    def wide(third: str) -> Branches:
        pair_of_two: Step = Fork(Conv("Conv2d_0b_1x3", d(384), (1, 3)), Conv(third, d(384), (3, 1)))
        pair_of_three: Step = Fork(Conv("Conv2d_0c_1x3", d(384), (1, 3)), Conv("Conv2d_0d_3x1", d(384), (3, 1)))
        return (
            chain([d(320)], [1]),
            [Conv("Conv2d_0a_1x1", d(384)), pair_of_two],
            [*chain([d(448), d(384)], (1, 3)), pair_of_three],
            pooled(False, d(192)),
        )

    usual = ("Conv2d_0a_1x1", "Conv2d_0b_5x5")
    return {
        "Mixed_5b": small(32, usual),
        "Mixed_5c": small(64, ("Conv2d_0b_1x1", "Conv_1_0c_5x5")),  # slim's own irregular names, here and below
        "Mixed_5d": small(64, usual),
        "Mixed_6a": (
            [Conv("Conv2d_1a_1x1", d(384), 3, 2, VALID)],
            [*chain([d(64), d(96)], (1, 3)), Conv("Conv2d_1a_1x1", d(96), 3, 2, VALID)],
            [Pool(True, 2, VALID)],
        ),
        "Mixed_6b": seven(128),
        "Mixed_6c": seven(160),
        "Mixed_6d": seven(160),
        "Mixed_6e": seven(192),
        "Mixed_7a": (
            [Conv("Conv2d_0a_1x1", d(192)), Conv("Conv2d_1a_3x3", d(320), 3, 2, VALID)],
            [*chain([d(192)] * 3, (1, (1, 7), (7, 1))), Conv("Conv2d_1a_3x3", d(192), 3, 2, VALID)],
            [Pool(True, 2, VALID)],
        ),
        "Mixed_7b": wide("Conv2d_0b_3x1"),
        "Mixed_7c": wide("Conv2d_0c_3x1"),
    }


def inception_v3(
    layers: Layers,
    x: Tensor,
    num_classes: int | None,
    dropout_keep_prob: float = 0.8,
    min_depth: int = 16,
    depth_multiplier: float = 1.0,
    spatial_squeeze: bool = True,
    create_aux_logits: bool = True,
    global_pool: bool = False,
) -> tuple[Tensor, EndPoints]:
    if depth_multiplier <= 0:
        raise ArgumentError(f"depth_multiplier is greater than 0, got {depth_multiplier}")
    note = layers.note
    with layers.scope("InceptionV3"):
        x = stem(layers, x, [max(int(c * depth_multiplier), min_depth) for c in (32, 32, 64, 80, 192)])
        for name, branches in _blocks(depth_multiplier, min_depth).items():
            with layers.scope(name):
                x = note(name, mixed(layers, x, branches))
        if create_aux_logits and num_classes:
            _auxiliary(
                layers,
                layers.end_points["Mixed_6e"],
                num_classes,
                max(int(128 * depth_multiplier), min_depth),
                max(int(768 * depth_multiplier), min_depth),
                spatial_squeeze,
            )
        with layers.scope("Logits"):
            if global_pool:
                x = note("global_pool", x.mean((2, 3), keepdim=True))
            else:
                x = note("AvgPool_1a", avg_pool(x, full_size(x, 8), 2))
            if not num_classes:
                return x, layers.end_points
            x = note("PreLogits", layers.dropout(x, dropout_keep_prob))
            x = layers.conv(x, num_classes, 1, "Conv2d_1c_1x1", style=linear(layers.style))
            return predicted(layers, squeezed(x, spatial_squeeze))


def _auxiliary(layers: Layers, x: Tensor, num_classes: int, narrow: int, wide: int, squeezes: bool) -> None:
    with layers.scope("AuxLogits"):
        x = layers.conv(avg_pool(x, 5, 3), narrow, 1, "Conv2d_1b_1x1")
        kernel = full_size(x, 5)
        style = layers.style.but(weights=truncated_normal(0.01), padding=VALID)
        x = layers.conv(x, wide, kernel, f"Conv2d_2a_{kernel[0]}x{kernel[1]}", style=style)
        style = linear(layers.style).but(weights=truncated_normal(0.001), padding=SAME)
        layers.note("AuxLogits", squeezed(layers.conv(x, num_classes, 1, "Conv2d_2b_1x1", style=style), squeezes))


NETWORKS = {"inception_v3": Description(inception_v3, 299, 4e-5, Style(weights=he(), norm=NORM))}
