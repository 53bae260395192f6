"""inception_resnet_v2: Inception branches as residuals, scaled down; weight decay touches its biases too."""

from __future__ import annotations

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
)
from flowvision.models.slim.inception_v3 import stem
from flowvision.models.slim.layers import ACTIVATIONS, Style, flat
from flowvision.models.slim.network import Description, EndPoints, Layers
from flowvision.models.slim.padding import SAME, VALID, avg_pool
from oneflow import Tensor
from oneflow.engine.core.errors import ArgumentError

_MIXED_5B: Branches = (
    [Conv("Conv2d_1x1", 96)],
    chain([48, 64], (1, 5)),
    chain([64, 96, 96], (1, 3, 3)),
    pooled(False, 64),
)
_BLOCK35: Branches = ([Conv("Conv2d_1x1", 32)], chain([32, 32], (1, 3)), chain([32, 48, 64], (1, 3, 3)))
_BLOCK17: Branches = ([Conv("Conv2d_1x1", 192)], chain([128, 160, 192], (1, (1, 7), (7, 1))))
_BLOCK8: Branches = ([Conv("Conv2d_1x1", 192)], chain([192, 224, 256], (1, (1, 3), (3, 1))))


def _reduction(padding: str, stride: int, *branches: tuple[int, ...]) -> Branches:
    """Branches that end in a 3x3 with a stride, and a pool; before the 3x3 a 1x1 and perhaps another 3x3."""
    ends = [
        [*chain(widths[:-1], (1, 3)[: len(widths) - 1]), Conv("Conv2d_1a_3x3", widths[-1], 3, stride, padding)]
        for widths in branches
    ]
    return (*ends, [Pool(True, stride, padding)])


def inception_resnet_v2(
    layers: Layers,
    x: Tensor,
    num_classes: int | None,
    dropout_keep_prob: float = 0.8,
    create_aux_logits: bool = True,
    output_stride: int = 16,
    align_feature_maps: bool = False,
    activation: str = "relu",
) -> tuple[Tensor, EndPoints]:
    """``output_stride`` 8 keeps the maps of the middle large; ``align_feature_maps`` pads everything SAME;
    ``activation`` may be relu6."""
    if output_stride not in (8, 16):
        raise ArgumentError(f"output_stride is 8 or 16, got {output_stride}")
    if output_stride == 8 and num_classes:
        raise ArgumentError(
            "with output_stride 8 the network ends at PreAuxLogits, as slim's does: give num_classes=None for its "
            "features"
        )
    if activation not in ACTIVATIONS:
        raise ArgumentError(f"activation is {' or '.join(ACTIVATIONS)}, got {activation!r}")
    layers.style = layers.style.but(activation=activation)
    padding = SAME if align_feature_maps else VALID
    note = layers.note
    with layers.scope("InceptionResnetV2"):
        x = stem(layers, x, [32, 32, 64, 80, 192], padding)
        with layers.scope("Mixed_5b"):
            x = note("Mixed_5b", mixed(layers, x, _MIXED_5B))
        x = _repeat(layers, x, "Repeat", "block35", 10, _BLOCK35, 0.17, activation)
        stride = 1 if output_stride == 8 else 2
        with layers.scope("Mixed_6a"):
            x = note("Mixed_6a", mixed(layers, x, _reduction(padding, stride, (384,), (256, 256, 384))))
        layers.rate = 2 // stride
        x = note("PreAuxLogits", _repeat(layers, x, "Repeat_1", "block17", 20, _BLOCK17, 0.10, activation))
        if output_stride == 8:
            return x, layers.end_points
        if create_aux_logits and num_classes:
            _auxiliary(layers, x, num_classes)
        with layers.scope("Mixed_7a"):
            x = note("Mixed_7a", mixed(layers, x, _reduction(padding, 2, (256, 384), (256, 288), (256, 288, 320))))
        x = _repeat(layers, x, "Repeat_2", "block8", 9, _BLOCK8, 0.20, activation)
        with layers.scope("Block8"):
            x = _residual(layers, x, _BLOCK8, 1.0, None)
        x = note("Conv2d_7b_1x1", layers.conv(x, 1536, 1, "Conv2d_7b_1x1"))
        with layers.scope("Logits"):
            x = note("global_pool", x.mean((2, 3), keepdim=True))
            if not num_classes:
                return x, layers.end_points
            x = note("PreLogitsFlatten", layers.dropout(x.flatten(1), dropout_keep_prob))
            return predicted(layers, layers.dense(x, num_classes, "Logits", linear(layers.style)))


def _repeat(
    layers: Layers, x: Tensor, scope: str, block: str, times: int, branches: Branches, scale: float, activation: str
) -> Tensor:
    for number in range(1, times + 1):
        with layers.scope(scope, f"{block}_{number}"):
            x = _residual(layers, x, branches, scale, activation)
    return x


def _residual(layers: Layers, x: Tensor, branches: Branches, scale: float, activation: str | None) -> Tensor:
    up = layers.conv(mixed(layers, x, branches), x.shape[1], 1, "Conv2d_1x1", style=linear(layers.style)) * scale
    if activation == "relu6":
        up = up.clamp(-6.0, 6.0)
    return ACTIVATIONS[activation](x + up) if activation else x + up


def _auxiliary(layers: Layers, x: Tensor, num_classes: int) -> None:
    with layers.scope("AuxLogits"):
        x = layers.conv(avg_pool(x, 5, 3), 128, 1, "Conv2d_1b_1x1")
        x = layers.conv(x, 768, full_size(x), "Conv2d_2a_5x5", style=layers.style.but(padding=VALID))
        layers.note("AuxLogits", layers.dense(flat(x), num_classes, "Logits", linear(layers.style)))


NETWORKS = {
    "inception_resnet_v2": Description(inception_resnet_v2, 299, 4e-5, Style(norm=NORM, regularizes_biases=True))
}
