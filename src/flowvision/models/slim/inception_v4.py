"""inception_v4, with its auxiliary classifier."""

from __future__ import annotations

from flowvision.models.slim.inception_blocks import (
    NORM,
    Branches,
    Conv,
    Fork,
    Pool,
    chain,
    full_size,
    linear,
    mixed,
    pooled,
    predicted,
)
from flowvision.models.slim.initializers import he, xavier
from flowvision.models.slim.layers import Style, flat
from flowvision.models.slim.network import Description, EndPoints, Layers
from flowvision.models.slim.padding import VALID, avg_pool
from oneflow import Tensor

_MAX_HALF = [Pool(True, 2, VALID)]
_A: Branches = (chain([96], [1]), chain([64, 96], (1, 3)), chain([64, 96, 96], (1, 3, 3)), pooled(False, 96))
_B: Branches = (
    chain([384], [1]),
    chain([192, 224, 256], (1, (1, 7), (7, 1))),
    chain([192, 192, 224, 224, 256], (1, (7, 1), (1, 7), (7, 1), (1, 7))),
    pooled(False, 128),
)
_C: Branches = (
    chain([256], [1]),
    [Conv("Conv2d_0a_1x1", 384), Fork(Conv("Conv2d_0b_1x3", 256, (1, 3)), Conv("Conv2d_0c_3x1", 256, (3, 1)))],
    [
        *chain([384, 448, 512], (1, (3, 1), (1, 3))),
        Fork(Conv("Conv2d_0d_1x3", 256, (1, 3)), Conv("Conv2d_0e_3x1", 256, (3, 1))),
    ],
    pooled(False, 256),
)
_BLOCKS: dict[str, Branches] = {
    "Mixed_3a": (_MAX_HALF, [Conv("Conv2d_0a_3x3", 96, 3, 2, VALID)]),
    "Mixed_4a": (
        [Conv("Conv2d_0a_1x1", 64), Conv("Conv2d_1a_3x3", 96, 3, 1, VALID)],
        [*chain([64, 64, 64], (1, (1, 7), (7, 1))), Conv("Conv2d_1a_3x3", 96, 3, 1, VALID)],
    ),
    "Mixed_5a": ([Conv("Conv2d_1a_3x3", 192, 3, 2, VALID)], _MAX_HALF),
    **{f"Mixed_5{letter}": _A for letter in "bcde"},
    "Mixed_6a": (
        [Conv("Conv2d_1a_3x3", 384, 3, 2, VALID)],
        [*chain([192, 224], (1, 3)), Conv("Conv2d_1a_3x3", 256, 3, 2, VALID)],
        _MAX_HALF,
    ),
    **{f"Mixed_6{letter}": _B for letter in "bcdefgh"},
    "Mixed_7a": (
        [Conv("Conv2d_0a_1x1", 192), Conv("Conv2d_1a_3x3", 192, 3, 2, VALID)],
        [*chain([256, 256, 320], (1, (1, 7), (7, 1))), Conv("Conv2d_1a_3x3", 320, 3, 2, VALID)],
        _MAX_HALF,
    ),
    **{f"Mixed_7{letter}": _C for letter in "bcd"},
}


def inception_v4(
    layers: Layers, x: Tensor, num_classes: int | None, dropout_keep_prob: float = 0.8, create_aux_logits: bool = True
) -> tuple[Tensor, EndPoints]:
    note = layers.note
    valid = layers.style.but(padding=VALID)
    with layers.scope("InceptionV4"):
        x = note("Conv2d_1a_3x3", layers.conv(x, 32, 3, "Conv2d_1a_3x3", 2, valid))
        x = note("Conv2d_2a_3x3", layers.conv(x, 32, 3, "Conv2d_2a_3x3", 1, valid))
        x = note("Conv2d_2b_3x3", layers.conv(x, 64, 3, "Conv2d_2b_3x3"))
        for name, branches in _BLOCKS.items():
            with layers.scope(name):
                x = note(name, mixed(layers, x, branches))
        if create_aux_logits and num_classes:
            with layers.scope("AuxLogits"):
                y = layers.conv(avg_pool(layers.end_points["Mixed_6h"], 5, 3), 128, 1, "Conv2d_1b_1x1")
                y = layers.conv(y, 768, full_size(y), "Conv2d_2a", style=valid)
                note("AuxLogits", layers.dense(flat(y), num_classes, "Aux_logits", _dense(layers.style)))
        with layers.scope("Logits"):
            x = note("global_pool", x.mean((2, 3), keepdim=True))
            if not num_classes:
                return x, layers.end_points
            x = note("PreLogitsFlatten", layers.dropout(x, dropout_keep_prob).flatten(1))
            return predicted(layers, layers.dense(x, num_classes, "Logits", _dense(layers.style)))


def _dense(style: Style) -> Style:
    return linear(style).but(weights=xavier())


NETWORKS = {"inception_v4": Description(inception_v4, 299, 4e-5, Style(weights=he(), norm=NORM))}
