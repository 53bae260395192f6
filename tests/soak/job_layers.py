"""Layers of random jobs. Each row takes a blob of one kind, with the batch as its first dim, and gives another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from random import Random
from typing import Any, Protocol

from layer import Kind, Shape

import oneflow as flow

Blob = Any


class Body(Protocol):
    """What a layer sees of the job around it."""

    name: str
    """A name for the ops of this layer."""
    dtype: Any
    splits: bool
    """Whether weights may be split."""

    def variable(self, suffix: str, shape: Shape, scale: float | None = None) -> Blob:
        """Returns a variable, distributed as the job says."""

    def earlier(self, x: Blob) -> Blob:
        """Returns a value of an earlier layer with the same shape, or the value itself."""


Make = Callable[[Body, Blob, Random], Blob]


@dataclass(frozen=True)
class JobLayer:
    """One kind of layer.

    Attributes:
        name: The name of the row.
        takes: The kind of the input.
        make: Emits the ops.
        fits: Whether inputs of a shape, with the batch, can be taken.
        is_sharp: Whether the result or its gradient depends on the order of equal values.
        makes_ties: Whether different elements of the output may be equal.
        shrinks: Whether the output is small, however large the input is.
    """

    name: str
    takes: Kind
    make: Make
    fits: Callable[[Shape], bool] = lambda shape: True
    is_sharp: bool = False
    makes_ties: bool = False
    shrinks: bool = False


def _normal(scale: float) -> Any:
    return flow.random_normal_initializer(0.0, scale)


def _rows(kind: Kind, *entries: Any) -> list[JobLayer]:
    return [
        JobLayer(f"{kind.name.lower()}.{name}", kind, make, **(options[0] if options else {}))
        for name, make, *options in entries
    ]


# ------------------------------------------------------------------ images


def conv(body: Body, x: Blob, draw: Random) -> Blob:
    width = draw.choice((4, 6, 8))
    y = flow.nn.conv2d(
        x, body.variable("w", (width, x.shape[1], 3, 3)), strides=draw.choice((1, 2)), padding="SAME", name=body.name
    )
    return y + flow.reshape(body.variable("b", (width,), 0.1), (1, width, 1, 1))


def grouped_conv(body: Body, x: Blob, draw: Random) -> Blob:
    weight = body.variable("w", (8, x.shape[1] // 2, 3, 3))
    return flow.nn.conv2d(x, weight, strides=1, padding=draw.choice(("VALID", "SAME")), groups=2, name=body.name)


def depthwise_conv(body: Body, x: Blob, draw: Random) -> Blob:
    channels = x.shape[1]
    weight = body.variable("w", (channels, 1, 3, 3))
    return flow.nn.conv2d(x, weight, strides=1, padding="SAME", groups=channels, name=body.name)


def dilated_conv(body: Body, x: Blob, draw: Random) -> Blob:
    weight = body.variable("w", (6, x.shape[1], 3, 3))
    return flow.nn.conv2d(x, weight, strides=1, padding="SAME", dilations=2, name=body.name)


def transposed_conv(body: Body, x: Blob, draw: Random) -> Blob:
    batch, channels, height, width = x.shape
    weight, output = body.variable("w", (channels, 6, 2, 2)), (batch, 6, height * 2, width * 2)
    return flow.nn.conv2d_transpose(x, weight, output_shape=output, strides=2, padding="VALID", name=body.name)


def channels_last_conv(body: Body, x: Blob, draw: Random) -> Blob:
    y = flow.transpose(x, (0, 2, 3, 1))
    weight = body.variable("w", (6, 1, 1, x.shape[1]))
    y = flow.nn.conv2d(y, weight, strides=1, padding="VALID", data_format="NHWC", name=body.name)
    y = flow.layers.batch_normalization(y, axis=3, name=f"{body.name}_norm")
    return flow.transpose(y, (0, 3, 1, 2))


def residual_conv(body: Body, x: Blob, draw: Random) -> Blob:
    weight = body.variable("w", (x.shape[1], x.shape[1], 3, 3))
    return x + flow.math.tanh(flow.nn.conv2d(x, weight, strides=1, padding="SAME", name=body.name))


def channel_parts(body: Body, x: Blob, draw: Random) -> Blob:
    half = flow.slice(x, [None, 0, None, None], [None, x.shape[1] // 2, None, None])
    return flow.concat([flow.math.sigmoid(x), flow.math.tanh(half), flow.reverse(half, axis=2)], axis=1)


def image_to_sequence(body: Body, x: Blob, draw: Random) -> Blob:
    batch, channels, height, width = x.shape
    return flow.transpose(flow.reshape(x, (batch, channels, height * width)), (0, 2, 1))


_LARGE = {"fits": lambda shape: min(shape[2:]) >= 4}
_SMALL = {"fits": lambda shape: max(shape[2:]) <= 8}
_EVEN = {"fits": lambda shape: shape[1] % 2 == 0 and min(shape[2:]) >= 4}

IMAGES = _rows(
    Kind.IMAGE,
    ("conv", conv, _LARGE),
    ("grouped_conv", grouped_conv, _EVEN),
    ("depthwise_conv", depthwise_conv, _LARGE),
    ("dilated_conv", dilated_conv, _LARGE),
    ("transposed_conv", transposed_conv, _SMALL),
    ("channels_last_conv", channels_last_conv),
    ("residual_conv", residual_conv),
    ("batch_norm", lambda b, x, d: flow.layers.batch_normalization(x, axis=1, name=b.name, momentum=0.9)),
    (
        "batch_norm_relu",
        lambda b, x, d: flow.layers.batch_normalization_relu(x, axis=1, name=b.name),
        {"makes_ties": True},
    ),
    ("instance_norm", lambda b, x, d: flow.nn.InstanceNorm2d(x, name=b.name), _LARGE),
    ("group_norm", lambda b, x, d: flow.nn.GroupNorm(x, num_groups=2, name=b.name), _EVEN),
    (
        "max_pool",
        lambda b, x, d: flow.nn.max_pool2d(x, 3, 2, "SAME", data_format="NCHW", name=b.name),
        {"is_sharp": True, **_LARGE},
    ),
    ("avg_pool", lambda b, x, d: flow.nn.avg_pool2d(x, 2, 2, "VALID", data_format="NCHW", name=b.name), _LARGE),
    (
        "prelu",
        lambda b, x, d: flow.layers.prelu(
            x, alpha_initializer=flow.constant_initializer(0.2), shared_axes=(2, 3), name=b.name
        ),
    ),
    ("dropout", lambda b, x, d: flow.nn.dropout(x, rate=0.3, name=b.name), {"makes_ties": True}),
    ("pad", lambda b, x, d: flow.pad(x, [(0, 0), (0, 0), (1, 0), (0, 1)], name=b.name), {"makes_ties": True}),
    ("channel_parts", channel_parts, {"fits": lambda shape: shape[1] % 2 == 0 and shape[1] <= 8}),
    (
        "upsample",
        lambda b, x, d: flow.layers.upsample_2d(x, (2, 2), interpolation="nearest", name=b.name),
        {"makes_ties": True, "fits": lambda shape: max(shape[2:]) <= 5},
    ),
    ("turned", lambda b, x, d: flow.transpose(x, (0, 1, 3, 2))),
    ("to_sequence", image_to_sequence, {"fits": lambda shape: shape[2] * shape[3] <= 40}),
    ("to_vector", lambda b, x, d: flow.reshape(x, (x.shape[0], -1)), {"shrinks": True}),
)

# ------------------------------------------------------------------ sequences


def attention(body: Body, x: Blob, draw: Random) -> Blob:
    batch, length, width = x.shape
    heads = 2 if width % 2 == 0 else 1
    projected = flow.matmul(flow.reshape(x, (batch * length, width)), body.variable("w", (width, 12 * heads)))
    projected = flow.transpose(flow.reshape(projected, (batch, length, 3, heads, 4)), (2, 0, 3, 1, 4))
    query, key, value = (
        flow.squeeze(flow.slice(projected, [part, None, None, None, None], [1, None, None, None, None]), [0])
        for part in range(3)
    )
    scores = flow.matmul(query, key, transpose_b=True, alpha=0.5)
    if draw.random() < 0.5:
        scores = flow.math.fused_scale_tril(scores, fill_value=-1e4, scale=1.0)
    weights = flow.nn.dropout(flow.nn.softmax(scores), rate=0.1, name=f"{body.name}_drop")
    mixed = flow.reshape(flow.transpose(flow.matmul(weights, value), (0, 2, 1, 3)), (batch, length, 4 * heads))
    return flow.concat([flow.slice(x, [None, None, 0], [None, None, min(width, 8)]), mixed], axis=2)


def batched_matmul(body: Body, x: Blob, draw: Random) -> Blob:
    batch, _, width = x.shape
    weight = flow.reshape(body.variable("w", (width, 8)), (1, width, 8))
    like = flow.zeros((batch, width, 8), dtype=body.dtype)
    return flow.math.tanh(flow.matmul(x, flow.broadcast_like(weight, like, broadcast_axes=(0,))))


def feed_forward(body: Body, x: Blob, draw: Random) -> Blob:
    split = flow.distribute.split(0) if body.splits else None
    options: dict[str, Any] = {"activation": flow.nn.gelu, "model_distribute": split}
    rows = flow.reshape(x, (-1, x.shape[2]))
    y = flow.layers.dense(rows, 16, kernel_initializer=_normal(0.3), name=body.name, **options)
    y = flow.layers.dense(y, x.shape[2], kernel_initializer=_normal(0.3), name=f"{body.name}_out")
    return x + flow.reshape(y, x.shape)


def one_hot_sequence(body: Body, x: Blob, draw: Random) -> Blob:
    marks = flow.one_hot(flow.math.argmax(x, axis=2), x.shape[2], dtype=body.dtype)
    return x + marks * flow.math.reduce_max(x, axis=[2], keepdims=True)


def largest_in_time(body: Body, x: Blob, draw: Random) -> Blob:
    places = flow.reshape(flow.math.argmax(x, axis=1), (x.shape[0], 1, x.shape[2]))
    return flow.dim_gather(x, 1, places) * x


def slices(body: Body, x: Blob, draw: Random) -> Blob:
    every_second = flow.slice_v2(x, [(None, None, None), (0, None, 2)])
    backwards = flow.slice_v2(x, [(None, None, None), (None, None, -1)])
    return flow.concat([every_second, flow.math.tanh(backwards)], axis=1)


def conv1d(body: Body, x: Blob, draw: Random) -> Blob:
    y = flow.nn.conv1d(
        flow.transpose(x, (0, 2, 1)), body.variable("w", (8, x.shape[2], 3)), 1, padding="SAME", name=body.name
    )
    return flow.transpose(y, (0, 2, 1))


SEQUENCES = _rows(
    Kind.SEQUENCE,
    ("attention", attention, {"makes_ties": True}),
    ("batched_matmul", batched_matmul),
    ("feed_forward", feed_forward),
    ("conv1d", conv1d),
    ("layer_norm", lambda b, x, d: flow.layers.layer_norm(x, begin_norm_axis=2, begin_params_axis=2, name=b.name)),
    ("softmax", lambda b, x, d: 3.0 * flow.nn.softmax(x, axis=d.choice((1, 2)))),
    ("dropout", lambda b, x, d: flow.nn.dropout(x, rate=0.25, name=b.name), {"makes_ties": True}),
    ("gelu", lambda b, x, d: flow.math.gelu(x)),
    ("minus_mean", lambda b, x, d: x - flow.math.reduce_mean(x, axis=[0, 1], keepdims=True)),
    ("where", lambda b, x, d: flow.where(flow.math.greater(x, flow.zeros_like(x)), x, x * 0.3)),
    ("one_hot", one_hot_sequence, {"is_sharp": True}),
    ("largest_in_time", largest_in_time, {"is_sharp": True}),
    ("slices", slices, {"makes_ties": True, "fits": lambda shape: 2 <= shape[1] <= 12}),
    (
        "segment_sum",
        lambda b, x, d: flow.unsorted_batch_segment_sum(x, flow.math.argmax(x, axis=2), x.shape[2]),
        {"is_sharp": True, "makes_ties": True},
    ),
    ("sort", lambda b, x, d: flow.sort(x, axis=-1), {"is_sharp": True}),
    ("reverse", lambda b, x, d: flow.reverse(x, axis=1) - 0.4 * x),
    (
        "stack_max",
        lambda b, x, d: flow.math.reduce_max(flow.stack([x, flow.math.sigmoid(x) - 0.2], axis=1), axis=[1]),
    ),
    ("flat_tanh", lambda b, x, d: flow.reshape(flow.math.tanh(flow.reshape(x, (-1,))), x.shape)),
    ("to_vector", lambda b, x, d: flow.reshape(x, (x.shape[0], -1)), {"shrinks": True}),
)

# ------------------------------------------------------------------ vectors


def dense(body: Body, x: Blob, draw: Random) -> Blob:
    split = flow.distribute.split(0) if body.splits and draw.random() < 0.5 else None
    options: dict[str, Any] = {"bias_initializer": flow.constant_initializer(0.1), "model_distribute": split}
    width = draw.choice((8, 10, 12))
    return flow.layers.dense(x, width, flow.math.tanh, kernel_initializer=_normal(0.4), name=body.name, **options)


def linear(body: Body, x: Blob, draw: Random) -> Blob:
    weight = body.variable("w", (x.shape[1], 12), 0.8 / sqrt(x.shape[1]))
    return flow.nn.bias_add(flow.matmul(x, weight), body.variable("b", (12,), 0.1), "NC")


def tied(body: Body, x: Blob, draw: Random) -> Blob:
    weight = body.variable("w", (x.shape[1], 8), 0.5)
    return flow.matmul(flow.math.tanh(flow.matmul(x, weight)), weight, transpose_b=True)


def embedding(body: Body, x: Blob, draw: Random) -> Blob:
    table = body.variable("e", (x.shape[1], 6), 0.5)
    return flow.concat([x, flow.gather(table, flow.math.argmax(x, axis=1))], axis=1)


def scatter_rows(body: Body, x: Blob, draw: Random) -> Blob:
    batch, width = x.shape
    places = flow.reshape(flow.math.argmax(x, axis=1), (batch, 1))
    return flow.matmul(x, flow.scatter_nd(places, x, (width, width))) * 0.1


def gather_rows(body: Body, x: Blob, draw: Random) -> Blob:
    batch, width = x.shape
    places = flow.reshape(flow.math.argmax(x, axis=1), (batch, 1))
    return x + flow.gather_nd(body.variable("t", (width, width), 0.3), places)


def class_sums(body: Body, x: Blob, draw: Random) -> Blob:
    classes = flow.math.argmax(x, axis=1)
    return x + 0.1 * flow.gather(flow.unsorted_segment_sum(x, classes, x.shape[1]), classes)


def top_columns(body: Body, x: Blob, draw: Random) -> Blob:
    return flow.concat([x, flow.dim_gather(x, 1, flow.math.top_k(x, k=min(4, x.shape[1])))], axis=1)


def outer(body: Body, x: Blob, draw: Random) -> Blob:
    batch, width = x.shape
    few = flow.math.tanh(flow.slice(x, [None, 0], [None, 3]))
    return flow.reshape(flow.reshape(x, (batch, width, 1)) * flow.reshape(few, (batch, 1, 3)), (batch, width * 3))


def halves(body: Body, x: Blob, draw: Random) -> Blob:
    middle = x.shape[1] // 2
    left = flow.slice_v2(x, [(None, None, None), (0, middle, 1)])
    return flow.concat([left, flow.math.sigmoid(flow.slice_v2(x, [(None, None, None), (middle, None, 1)]))], axis=1)


def turned_sum(body: Body, x: Blob, draw: Random) -> Blob:
    turned = flow.math.tanh(flow.transpose(x, (1, 0))) + flow.transpose(body.earlier(x), (1, 0))
    return flow.transpose(turned, (1, 0))


def hinted_split(body: Body, x: Blob, draw: Random) -> Blob:
    batch, width = x.shape
    split = flow.reshape(x.with_distribute(flow.distribute.split(0)), (batch, 2, width // 2))
    return flow.reshape(flow.math.gelu(split), (batch, width))


_SHARP = {"is_sharp": True}

VECTORS = _rows(
    Kind.VECTOR,
    ("dense", dense, {"shrinks": True}),
    ("linear", linear, {"shrinks": True}),
    ("tied", tied),
    ("layer_norm", lambda b, x, d: flow.layers.layer_norm(x, begin_norm_axis=1, begin_params_axis=1, name=b.name)),
    ("batch_norm", lambda b, x, d: flow.layers.batch_normalization(x, axis=1, name=b.name)),
    ("embedding", embedding, _SHARP),
    ("softmax", lambda b, x, d: flow.nn.softmax(x) * float(x.shape[1])),
    ("log_softmax", lambda b, x, d: flow.nn.logsoftmax(x) * 0.3),
    ("top_columns", top_columns, {"is_sharp": True, "makes_ties": True}),
    ("outer", outer, {"fits": lambda shape: 3 <= shape[1] <= 20}),
    ("l2_normalize", lambda b, x, d: flow.math.l2_normalize(x, axis=d.choice((0, 1))) * 2.0),
    ("dropout", lambda b, x, d: flow.nn.dropout(x, rate=0.5, name=b.name), {"makes_ties": True}),
    ("scatter_rows", scatter_rows, _SHARP),
    ("gather_rows", gather_rows, _SHARP),
    ("class_sums", class_sums, _SHARP),
    ("prelu", lambda b, x, d: flow.layers.prelu(x, alpha_initializer=flow.constant_initializer(0.1), name=b.name)),
    ("batch_mix", lambda b, x, d: x - flow.math.reduce_mean(x, axis=0, keepdims=True) + 0.1 * flow.reverse(x, axis=0)),
    ("over_std", lambda b, x, d: x / (flow.math.reduce_std(x, axis=0, keepdims=True) + 0.1)),
    ("gram", lambda b, x, d: flow.matmul(flow.matmul(x, x, transpose_b=True), x) * (0.2 / x.shape[1])),
    (
        "where",
        lambda b, x, d: flow.where(
            flow.math.less(x, 0.3 * flow.ones_like(x)), flow.math.exp(-0.5 * flow.math.abs(x)), x
        ),
    ),
    ("relu", lambda b, x, d: flow.nn.relu(x), {"makes_ties": True}),
    ("clip", lambda b, x, d: flow.clip_by_value(x, -0.7, 0.9), {"makes_ties": True}),
    ("halves", halves, {"fits": lambda shape: shape[1] >= 2}),
    ("divide", lambda b, x, d: x / (flow.math.square(b.earlier(x)) + 1.0)),
    ("product", lambda b, x, d: flow.math.tanh(x) * b.earlier(x)),
    ("turned_sum", turned_sum),
    ("hinted_split", hinted_split, {"fits": lambda shape: shape[1] % 2 == 0}),
    ("hinted_broadcast", lambda b, x, d: flow.math.sigmoid(x.with_distribute(flow.distribute.broadcast()))),
    (
        "to_sequence",
        lambda b, x, d: flow.reshape(x, (x.shape[0], 2, x.shape[1] // 2)),
        {"fits": lambda shape: shape[1] % 2 == 0},
    ),
    (
        "to_image",
        lambda b, x, d: flow.reshape(x, (x.shape[0], 2, 2, x.shape[1] // 4)),
        {"fits": lambda shape: shape[1] % 4 == 0 and shape[1] >= 16},
    ),
)

LAYERS = {layer.name: layer for layer in (*IMAGES, *SEQUENCES, *VECTORS)}
