"""lenet, cifarnet, alexnet_v2, overfeat and vgg: convolutions, pools and full connections, without batch norm."""

from __future__ import annotations

from collections.abc import Sequence

import torch

import oneflow.nn.functional as F
from flowvision.models.slim.initializers import constant, truncated_normal
from flowvision.models.slim.layers import Style, flat
from flowvision.models.slim.network import Body, Description, EndPoints, Layers
from flowvision.models.slim.padding import VALID, max_pool
from oneflow import Tensor


def lenet(
    layers: Layers, x: Tensor, num_classes: int | None, dropout_keep_prob: float = 0.5
) -> tuple[Tensor, EndPoints]:
    note = layers.note
    with layers.scope("LeNet"):
        for number, channels in ((1, 32), (2, 64)):
            x = note(f"conv{number}", layers.conv(x, channels, 5, f"conv{number}"))
            x = note(f"pool{number}", max_pool(x, 2))
        x = note("Flatten", flat(x))
        x = note("fc3", layers.dense(x, 1024, "fc3"))
        if not num_classes:
            return x, layers.end_points
        x = note("dropout3", layers.dropout(x, dropout_keep_prob))
        logits = note("Logits", layers.dense(x, num_classes, "fc4", layers.style.but(activation=None)))
    note("Predictions", F.softmax(logits, 1))
    return logits, layers.end_points


def cifarnet(
    layers: Layers, x: Tensor, num_classes: int | None, dropout_keep_prob: float = 0.5
) -> tuple[Tensor, EndPoints]:
    note = layers.note
    dense = layers.style.but(weights=truncated_normal(0.04), biases=constant(0.1), regularizes_weights=True)
    with layers.scope("CifarNet"):
        x = note("conv1", layers.conv(x, 64, 5, "conv1"))
        x = note("pool1", max_pool(x, 2))
        x = note("conv2", layers.conv(_response_norm(x), 64, 5, "conv2"))
        x = note("pool2", max_pool(_response_norm(x), 2))
        x = note("Flatten", flat(x))
        x = note("fc3", layers.dense(x, 384, "fc3", dense))
        x = note("fc4", layers.dense(layers.dropout(x, dropout_keep_prob), 192, "fc4", dense))
        if not num_classes:
            return x, layers.end_points
        last = layers.style.but(weights=truncated_normal(1 / 192), activation=None)
        logits = note("Logits", layers.dense(x, num_classes, "logits", last))
    note("Predictions", F.softmax(logits, 1))
    return logits, layers.end_points


def _response_norm(x: Tensor, radius: int = 4, alpha: float = 0.001 / 9, beta: float = 0.75) -> Tensor:
    """TensorFlow's LRN. The sums over neighbouring channels are a product with a band matrix: torch's own, a pool in
    three dims, takes four times as long."""
    channels = torch.arange(x.shape[1], device=x.device)
    band = ((channels[:, None] - channels).abs() <= radius).to(x.dtype)
    sums = (x.permute(0, 2, 3, 1).square() @ band).permute(0, 3, 1, 2)
    return x * (1 + alpha * sums) ** -beta


def _head(
    layers: Layers,
    x: Tensor,
    num_classes: int | None,
    widths: tuple[int, int],
    kernel: int,
    padding: str,
    keep: float,
    squeezes: bool,
    pools: bool,
    style: Style,
    last: Style,
) -> tuple[Tensor, EndPoints]:
    """fc6 to fc8, which are convolutions, so that larger pictures give a map of scores."""
    x = layers.note(layers.path("fc6"), layers.conv(x, widths[0], kernel, "fc6", style=style.but(padding=padding)))
    x = layers.note(layers.path("fc7"), layers.conv(layers.dropout(x, keep), widths[1], 1, "fc7", style=style))
    if pools:
        x = layers.note("global_pool", x.mean((2, 3), keepdim=True))
    if not num_classes:
        return x, layers.end_points
    x = layers.conv(layers.dropout(x, keep), num_classes, 1, "fc8", style=last)
    if squeezes and tuple(x.shape[2:]) == (1, 1):
        x = x.flatten(1)
    return layers.note(layers.path("fc8"), x), layers.end_points


def alexnet_v2(
    layers: Layers,
    x: Tensor,
    num_classes: int | None,
    dropout_keep_prob: float = 0.5,
    spatial_squeeze: bool = True,
    global_pool: bool = False,
) -> tuple[Tensor, EndPoints]:
    style = layers.style
    with layers.scope("alexnet_v2"):
        x = layers.note(layers.path("conv1"), layers.conv(x, 64, 11, "conv1", 4, style.but(padding=VALID)))
        x = layers.note(layers.path("pool1"), max_pool(x, 3))
        x = layers.note(layers.path("conv2"), layers.conv(x, 192, 5, "conv2"))
        x = layers.note(layers.path("pool2"), max_pool(x, 3))
        for number, channels in ((3, 384), (4, 384), (5, 256)):
            x = layers.note(layers.path(f"conv{number}"), layers.conv(x, channels, 3, f"conv{number}"))
        x = layers.note(layers.path("pool5"), max_pool(x, 3))
        dense = style.but(weights=truncated_normal(0.005))
        last = dense.but(activation=None, biases=constant(0.0))
        return _head(
            layers, x, num_classes, (4096, 4096), 5, VALID, dropout_keep_prob, spatial_squeeze, global_pool, dense, last
        )


def overfeat(
    layers: Layers,
    x: Tensor,
    num_classes: int | None,
    dropout_keep_prob: float = 0.5,
    spatial_squeeze: bool = True,
    global_pool: bool = False,
) -> tuple[Tensor, EndPoints]:
    style = layers.style
    valid = style.but(padding=VALID)
    with layers.scope("overfeat"):
        x = layers.note(layers.path("conv1"), layers.conv(x, 64, 11, "conv1", 4, valid))
        x = layers.note(layers.path("pool1"), max_pool(x, 2))
        x = layers.note(layers.path("conv2"), layers.conv(x, 256, 5, "conv2", 1, valid))
        x = layers.note(layers.path("pool2"), max_pool(x, 2))
        for number, channels in ((3, 512), (4, 1024), (5, 1024)):
            x = layers.note(layers.path(f"conv{number}"), layers.conv(x, channels, 3, f"conv{number}"))
        x = layers.note(layers.path("pool5"), max_pool(x, 2))
        dense = style.but(weights=truncated_normal(0.005), biases=constant(0.1))
        last = dense.but(activation=None, biases=constant(0.0))
        return _head(
            layers, x, num_classes, (3072, 4096), 6, VALID, dropout_keep_prob, spatial_squeeze, global_pool, dense, last
        )


def _vgg(name: str, repeats: Sequence[int]) -> Body:
    def body(
        layers: Layers,
        x: Tensor,
        num_classes: int | None,
        dropout_keep_prob: float = 0.5,
        spatial_squeeze: bool = True,
        fc_conv_padding: str = VALID,
        global_pool: bool = False,
    ) -> tuple[Tensor, EndPoints]:
        with layers.scope(name):
            for group, (repeat, channels) in enumerate(zip(repeats, (64, 128, 256, 512, 512)), 1):
                for number in range(1, repeat + 1):
                    scope = f"conv{group}/conv{group}_{number}"
                    x = layers.note(layers.path(scope), layers.conv(x, channels, 3, scope))
                x = layers.note(layers.path(f"pool{group}"), max_pool(x, 2))
            last = layers.style.but(activation=None)
            return _head(
                layers,
                x,
                num_classes,
                (4096, 4096),
                7,
                fc_conv_padding,
                dropout_keep_prob,
                spatial_squeeze,
                global_pool,
                layers.style,
                last,
            )

    return body


_PLAIN = Style()
_VGG_16, _VGG_19 = (
    Description(_vgg("vgg_16", (2, 2, 3, 3, 3)), 224, 5e-4, _PLAIN),
    Description(_vgg("vgg_19", (2, 2, 4, 4, 4)), 224, 5e-4, _PLAIN),
)

NETWORKS = {
    "lenet": Description(lenet, 28, 0.0, Style(weights=truncated_normal(0.1))),
    "cifarnet": Description(cifarnet, 32, 0.004, Style(weights=truncated_normal(0.05), regularizes_weights=False)),
    "alexnet_v2": Description(alexnet_v2, 224, 5e-4, Style(biases=constant(0.1))),
    "overfeat": Description(overfeat, 231, 5e-4, _PLAIN),
    "vgg_a": Description(_vgg("vgg_a", (1, 1, 2, 2, 2)), 224, 5e-4, _PLAIN),
    "vgg_16": _VGG_16,
    "vgg_19": _VGG_19,
}
ALIASES = {"vgg_d": "vgg_16", "vgg_e": "vgg_19"}
