"""mobilenet_v1 and mobilenet_v2: depthwise convolutions, each with a batch norm of its own, which weight decay leaves
alone."""

from __future__ import annotations

import oneflow.nn.functional as F
from flowvision.models.slim.initializers import truncated_normal
from flowvision.models.slim.layers import Norm, Style
from flowvision.models.slim.network import Description, EndPoints, Layers
from flowvision.models.slim.padding import avg_pool
from oneflow import Tensor
from oneflow.engine.core.errors import ArgumentError

_V1 = (
    (1, 64),
    (2, 128),
    (1, 128),
    (2, 256),
    (1, 256),
    (2, 512),
    *[(1, 512)] * 5,
    (2, 1024),
    (1, 1024),
)  # stride, channels
_V2 = (
    (1, 16),
    (2, 24),
    (1, 24),
    (2, 32),
    (1, 32),
    (1, 32),
    (2, 64),
    *[(1, 64)] * 3,
    *[(1, 96)] * 3,
    (2, 160),
    (1, 160),
    (1, 160),
    (1, 320),
)


def make_divisible(value: float, divisor: int = 8) -> int:
    """The nearest multiple, at least ``divisor``, and not more than a tenth below ``value``."""
    result = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return result + divisor if result < 0.9 * value else result


def mobilenet_v1(
    layers: Layers,
    x: Tensor,
    num_classes: int | None,
    dropout_keep_prob: float = 0.999,
    depth_multiplier: float = 1.0,
    min_depth: int = 8,
    spatial_squeeze: bool = True,
    global_pool: bool = False,
) -> tuple[Tensor, EndPoints]:
    _require_positive(depth_multiplier)
    note = layers.note

    def depth(channels: int) -> int:
        return max(int(channels * depth_multiplier), min_depth)

    with layers.scope("MobilenetV1"):
        x = note("Conv2d_0", layers.conv(x, depth(32), 3, "Conv2d_0", 2))
        for number, (stride, channels) in enumerate(_V1, 1):
            name = f"Conv2d_{number}_depthwise"
            x = note(
                name, layers.separable_conv(x, None, 3, name, stride, style=layers.style.but(regularizes_weights=False))
            )
            name = f"Conv2d_{number}_pointwise"
            x = note(name, layers.conv(x, depth(channels), 1, name))
        with layers.scope("Logits"):
            if global_pool:
                x = note("global_pool", x.mean((2, 3), keepdim=True))
            else:
                x = note("AvgPool_1a", avg_pool(x, (min(7, x.shape[2]), min(7, x.shape[3])), 2))
            if not num_classes:
                return x, layers.end_points
            return _classified(layers, x, num_classes, dropout_keep_prob, spatial_squeeze)


def mobilenet_v2(
    layers: Layers,
    x: Tensor,
    num_classes: int | None,
    dropout_keep_prob: float = 0.8,
    depth_multiplier: float = 1.0,
    finegrain_classification_mode: bool = False,
) -> tuple[Tensor, EndPoints]:
    """``finegrain_classification_mode`` keeps the last layer at full width where ``depth_multiplier`` is below 1."""
    _require_positive(depth_multiplier)
    keeps_last = finegrain_classification_mode and depth_multiplier < 1
    note = layers.note
    with layers.scope("MobilenetV2"):
        x = note("layer_1", layers.conv(x, make_divisible(32 * depth_multiplier), 3, "Conv", 2))
        for number, (stride, channels) in enumerate(_V2):
            name = f"layer_{number + 2}"
            with layers.scope("expanded_conv" if number == 0 else f"expanded_conv_{number}"):
                x = note(
                    name,
                    _inverted_residual(
                        layers, x, make_divisible(channels * depth_multiplier), stride, 1 if number == 0 else 6, name
                    ),
                )
        last = 1280 if keeps_last else make_divisible(1280 * depth_multiplier)
        x = note("layer_19", layers.conv(x, last, 1, "Conv_1"))
        x = note("global_pool", x.mean((2, 3), keepdim=True))
        if not num_classes:
            return x, layers.end_points
        with layers.scope("Logits"):
            return _classified(layers, x, num_classes, dropout_keep_prob, True)


def _inverted_residual(layers: Layers, x: Tensor, channels: int, stride: int, expansion: int, name: str) -> Tensor:
    y = x
    if expansion > 1:
        y = layers.note(f"{name}/expansion_output", layers.conv(y, make_divisible(x.shape[1] * expansion), 1, "expand"))
    depthwise = layers.style.but(regularizes_weights=False)
    y = layers.note(f"{name}/depthwise_output", layers.separable_conv(y, None, 3, "depthwise", stride, style=depthwise))
    y = layers.conv(y, channels, 1, "project", style=layers.style.but(activation=None))
    if stride == 1 and x.shape[1] == channels:
        y = y + x
    return layers.note(f"{name}/output", y)


def _classified(layers: Layers, x: Tensor, num_classes: int, keep: float, squeezes: bool) -> tuple[Tensor, EndPoints]:
    x = layers.conv(
        layers.dropout(x, keep), num_classes, 1, "Conv2d_1c_1x1", style=layers.style.but(norm=None, activation=None)
    )
    if squeezes and tuple(x.shape[2:]) == (1, 1):
        x = x.flatten(1)
    logits = layers.note("Logits", x)
    layers.note("Predictions", F.softmax(logits, 1))
    return logits, layers.end_points


def _require_positive(multiplier: float) -> None:
    if multiplier <= 0:
        raise ArgumentError(f"depth_multiplier is greater than 0, got {multiplier}")


def _description(version: int, **options: object) -> Description:
    norm = Norm(decay=0.9997 if version == 1 else 0.997, epsilon=0.001, scale=True)
    style = Style(weights=truncated_normal(0.09), norm=norm, activation="relu6")
    return Description(mobilenet_v1 if version == 1 else mobilenet_v2, 224, 4e-5, style, options)


NETWORKS = {
    "mobilenet_v1": _description(1),
    "mobilenet_v1_075": _description(1, depth_multiplier=0.75),
    "mobilenet_v1_050": _description(1, depth_multiplier=0.5),
    "mobilenet_v1_025": _description(1, depth_multiplier=0.25),
    "mobilenet_v2": _description(2),
    "mobilenet_v2_140": _description(2, depth_multiplier=1.4),
    "mobilenet_v2_035": _description(2, depth_multiplier=0.35, finegrain_classification_mode=True),
}
