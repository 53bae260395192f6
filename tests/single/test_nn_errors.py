"""What the ops of flow.nn, flow.layers and flow.losses refuse, and with what words."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent / "samples"))

from runner import trace
from sample import Sample, ints, rand

from oneflow import array, layers, losses, nn
from oneflow.compat import compat
from oneflow.engine.core.errors import (
    ArgumentError,
    DTypeError,
    JobError,
    NameError_,
    OutsideJobError,
    UnsupportedError,
)
from oneflow.engine.core.sbp import split
from oneflow.engine.core.tree import tree_map
from oneflow.engine.ir.variable import get_variable
from oneflow.initializer import constant_initializer

X, W = rand(2, 3, 8, 8), rand(4, 3, 3, 3)
FLAT, LABELS = rand(4, 3), ints(4, high=3)

Case = tuple[Callable[..., Any], tuple[np.ndarray, ...], type[Exception], str]

CONVOLUTIONS: list[Case] = [
    (lambda x, w: nn.conv2d(x, w, 1, "SOME"), (X, W), ArgumentError, "padding is one of SAME, .*'SOME'"),
    (lambda x, w: nn.conv2d(x, w, 1, [1, 1]), (X, W), ArgumentError, "one entry for each of the 4 dimensions"),
    (lambda x, w: nn.conv2d(x, w, 1, [1, 0, 0, 0]), (X, W), ArgumentError, "batch and channel are not padded"),
    (lambda x, w: nn.conv2d(x, w, 1, [0, 0, (1, -1), 0]), (X, W), ArgumentError, r"0 or more; got \(1, -1\)"),
    (
        lambda x, w: nn.conv2d(x, w, 1, "SAME", w),
        (X, W),
        ArgumentError,
        r"bias has shape \(4, 3, 3, 3\), expected \(4,\)",
    ),
    (lambda x, w: nn.conv2d(x, w, [1, 2, 3], "SAME"), (X, W), ArgumentError, "strides is an int > 0 or a list of 2"),
    (lambda x, w: nn.conv2d(x, w, 0, "SAME"), (X, W), ArgumentError, "strides is an int > 0"),
    (lambda x, w: nn.conv2d(x, w, 1, "SAME", dilations=[0, 1]), (X, W), ArgumentError, "dilations is an int > 0"),
    (lambda x, w: nn.conv2d(x, w, 1, "SAME", groups=0), (X, W), ArgumentError, "groups is an int > 0, got 0"),
    (lambda x, w: nn.conv2d(x, w, 1, "SAME"), (rand(3, 8, 8), W), ArgumentError, "input has rank 4"),
    (
        lambda x, w: nn.conv2d(x, w, 1, "SAME"),
        (rand(2, 5, 8, 8), W),
        ArgumentError,
        "input has 5 channels, filters and groups=1 expect 3",
    ),
    (
        lambda x, w: nn.conv2d(x, w, 1, "SAME", groups=3),
        (X, rand(4, 1, 3, 3)),
        ArgumentError,
        "4 filters cannot be divided into 3 groups",
    ),
    (
        lambda x, w: nn.conv2d(x, w, 1, "VALID"),
        (rand(2, 3, 2, 2), W),
        ArgumentError,
        "window of 3 does not fit a dimension of 2",
    ),
    (lambda x, w: nn.conv2d(x, w, 1, "VALID"), (X, W.astype(np.float64)), DTypeError, "float32 and float64"),
    (
        lambda x, w, b: nn.conv2d(x, w, 1, "VALID", bias=b),
        (X, W, rand(3)),
        ArgumentError,
        r"bias has shape \(3,\), expected \(4,\)",
    ),
    (lambda x: nn.conv2d(x, np.zeros((4, 3, 3, 3)), 1, "VALID"), (X,), DTypeError, "filters is a blob, got ndarray"),
    (
        lambda x, w: nn.conv2d_transpose(x, w, (2, 4, 20, 20), 2, "SAME"),
        (X, rand(3, 4, 3, 3)),
        ArgumentError,
        "would come from an input of 10",
    ),
    (
        lambda x, w: nn.conv2d_transpose(x, w, (2, 4, 0, 16), 2, "SAME"),
        (X, rand(3, 4, 3, 3)),
        ArgumentError,
        "a height and a width > 0",
    ),
    (lambda x, w: nn.conv2d_transpose(x, w), (X, rand(3, 4, 3, 3)), ArgumentError, "output_shape has four ints"),
    (lambda x, b: nn.bias_add(x, b, "WHC"), (X, rand(3)), ValueError, "data_format begins with 'NC'"),
    (
        lambda x, b: nn.bias_add(x, b),
        (X, rand(4)),
        ArgumentError,
        "bias has 4 elements, dimension 1 of the value has 3",
    ),
    (lambda x, b: nn.bias_add(x, b), (X, ints(3)), DTypeError, "value is float32 and bias is int32"),
]

POOLS: list[Case] = [
    (lambda x: nn.max_pool2d(x, 2, 2, "VALID", "CHWN"), (X,), ArgumentError, "data_format is"),
    (lambda x: nn.max_pool2d(x, [2, 2, 2], 2, "VALID"), (X,), ArgumentError, "ksize is an int > 0 or a list of 2"),
    (lambda x: nn.avg_pool2d(x, 9, 1, "VALID"), (X,), ArgumentError, "window of 9 does not fit"),
    (lambda x: nn.avg_pool2d(x, 2, 1, [0, 0, 2, 0]), (X,), ArgumentError, "nothing but padding"),
    (lambda x: nn.max_pool3d(x, 2, 2, "VALID"), (X,), ArgumentError, "input has rank 5"),
    (lambda x: nn.max_pool2d(x, 2, 2, "VALID"), (ints(1, 1, 4, 4),), DTypeError, "expected a float blob"),
    (lambda x: nn.PixelShuffle(x, 2), (X,), ArgumentError, "3 channels cannot be divided into blocks of 2 x 2"),
    (
        lambda x: layers.upsample_2d(x, interpolation="cubic"),
        (X,),
        ArgumentError,
        "'nearest' or 'bilinear', got 'cubic'",
    ),
]

LOSSES: list[Case] = [
    (
        nn.sparse_softmax_cross_entropy_with_logits,
        (FLAT, LABELS),
        DTypeError,
        "class numbers.*labels and logits in this order",
    ),
    (
        nn.sparse_softmax_cross_entropy_with_logits,
        (ints(3), FLAT),
        ArgumentError,
        r"labels have shape \(3,\).* expect \(4,\)",
    ),
    (nn.sparse_cross_entropy, (LABELS, rand(4)), ArgumentError, "rank 1, expected 2 or more"),
    (nn.softmax_cross_entropy_with_logits, (rand(4, 2), FLAT), ArgumentError, "they must be equal"),
    (nn.softmax_cross_entropy_with_logits, (ints(4, 3), FLAT), DTypeError, "expected a float blob"),
    (nn.sigmoid_cross_entropy_with_logits, (rand(3), FLAT), ArgumentError, "they must be equal"),
    (nn.smooth_l1_loss, (FLAT, rand(3)), ArgumentError, "they must be equal"),
    (
        lambda x: nn.MSELoss(x, x, "median"),
        (FLAT,),
        ArgumentError,
        "reduction is 'mean', 'sum' or 'none', got 'median'",
    ),
    (lambda x: losses.add_loss(x), (FLAT,), JobError, "predict job"),
    (lambda x: losses.add_loss([x]), (FLAT,), DTypeError, "add_loss takes one blob, got list"),
]

LAYERS: list[Case] = [
    (lambda x: layers.dense(x, 0), (FLAT,), ArgumentError, "units is an int > 0, got 0"),
    (lambda x: layers.dense(x, 3), (rand(4),), ArgumentError, "rank 2 or more"),
    (lambda x: layers.dense(x, 3, model_distribute=split(1)), (FLAT,), ArgumentError, "auto, broadcast or split"),
    (
        lambda x: layers.dense(x, 3, model_distribute=split(0)),
        (rand(2, 3, 4),),
        ArgumentError,
        "takes inputs of rank 2",
    ),
    (lambda x: layers.dense(x, 3, kernel_initializer=0.1), (FLAT,), ArgumentError, "is not an initializer"),
    (lambda x: layers.dense(x, True), (FLAT,), ArgumentError, "units is an int > 0, got True"),
    (
        lambda x: layers.dense(x, 3, kernel_regularizer=0.1),
        (FLAT,),
        ArgumentError,
        "0.1 is not a regularizer .*-weight'.*flow.regularizers",
    ),
    (lambda x: layers.dense(x, 3, bias_regularizer="l2"), (FLAT,), ArgumentError, "'l2' is not a regularizer .*-bias'"),
    (
        lambda x: layers.dense(x, 3, activation="relu"),
        (FLAT,),
        ArgumentError,
        "activation is a function .* flow.nn.relu; got 'relu'",
    ),
    (lambda x: layers.dense(x, 3, trainable="no"), (FLAT,), ArgumentError, "trainable is True or False, got 'no'"),
    (lambda x: layers.dense(x, 3, use_bias="no"), (FLAT,), ArgumentError, "use_bias is True or False, got 'no'"),
    (lambda x: layers.conv2d(x, 4, kernel_regularizer=0.1), (X,), ArgumentError, "0.1 is not a regularizer"),
    (lambda x: layers.conv2d(x, 4, activation="relu"), (X,), ArgumentError, "activation is a function"),
    (lambda x: layers.conv2d(x, 4, use_bias=3), (X,), ArgumentError, "use_bias is True or False, got 3"),
    (lambda x: layers.batch_normalization(x, gamma_regularizer=0.1), (X,), ArgumentError, "0.1 is not a regularizer"),
    (
        lambda x: layers.batch_normalization(x, training="no"),
        (X,),
        ArgumentError,
        "training is True or False, got 'no'",
    ),
    (lambda x: layers.batch_normalization(x, epsilon="a"), (X,), ArgumentError, "epsilon is a number >= 0, got 'a'"),
    (lambda x: layers.layer_norm(x, center="no"), (X,), ArgumentError, "center is True or False, got 'no'"),
    (lambda x: layers.dense(layers.dense(x, 3, name="d"), 3, name="d"), (FLAT,), NameError_, "already exist"),
    (
        lambda x: layers.conv2d(x, 4, 3, groups=2),
        (X,),
        ArgumentError,
        "groups divides the 3 channels .* 4 filters, got 2",
    ),
    (lambda x: layers.conv2d(x, "4"), (X,), ArgumentError, "filters is an int > 0"),
    (lambda x: layers.batch_normalization(x, axis=4), (X,), ArgumentError, "axis is an int from -4 to 3, got 4"),
    (
        lambda x: layers.batch_normalization(x, momentum=2),
        (X,),
        ArgumentError,
        "momentum is a number >= 0 and <= 1, got 2",
    ),
    (lambda x: layers.batch_normalization(x), (rand(1, 3),), ArgumentError, "more than one value a channel"),
    (lambda x, m: nn.batch_normalization(x, m, m), (X, rand(2)), ArgumentError, r"3 channels, .* has shape \(2,\)"),
    (lambda x, g: nn.layer_norm(x, g), (X, rand(3)), ArgumentError, r"shape of the last dimensions, got \(3,\)"),
    (lambda x: nn.GroupNorm(x, 2), (X,), ArgumentError, "3 channels cannot be divided into 2 groups"),
    (lambda x: nn.InstanceNorm1d(x), (X,), ArgumentError, "x has rank 3"),
    (lambda x: layers.prelu(x, shared_axes=[0]), (X,), ArgumentError, "axes after the batch"),
]

OTHERS: list[Case] = [
    (lambda x: nn.dropout(x), (FLAT,), ArgumentError, "dropout's rate is a number >= 0 and < 1, got None"),
    (lambda x: nn.dropout(x, 1.0), (FLAT,), ArgumentError, "and < 1, got 1.0"),
    (lambda x: nn.leaky_relu(x, "a"), (FLAT,), ArgumentError, "alpha is a number, got 'a'"),
    (lambda x: nn.dropout(x, 0.5, seed="a"), (FLAT,), ArgumentError, "a seed is an int"),
    (lambda x: nn.dropout(x, 0.5, noise_shape=(4, 1)), (FLAT,), UnsupportedError, "noise_shape is that of the blob"),
    (lambda x: nn.softmax(x), (rand(3),), ArgumentError, "rank 1, expected 2 or more"),
    (lambda x: nn.softmax(x, axis=2), (FLAT,), ArgumentError, "axis 2 does not exist"),
    (lambda x: nn.hardtanh(x, 1, -1), (FLAT,), ArgumentError, "not below its upper bound"),
    (lambda x: nn.leaky_relu(x), (LABELS,), DTypeError, "expected a float blob, got int32"),
]


@pytest.mark.parametrize("case", CONVOLUTIONS + POOLS + LOSSES + LAYERS + OTHERS)
def test_refused(case: Case) -> None:
    call, inputs, error, words = case
    sample = Sample("", lambda *blobs: call(*blobs), inputs, None, is_train="predict" not in words)  # type: ignore[arg-type]
    with pytest.raises(error, match=words) as caught:
        trace(sample)
    assert f"{Path(__file__).name}:" in str(caught.value)


@pytest.mark.parametrize("call", [nn.dropout, layers.dense, losses.add_loss])
def test_outside_a_job(call: Callable[..., Any]) -> None:
    with pytest.raises(OutsideJobError, match="outside a job function"):
        call(None, 1) if call is not losses.add_loss else call(None)


THREE, HALF = np.int64(3), np.float32(0.5)
NUMPY_NUMBERS: list[tuple[Callable[..., Any], tuple[int, ...]]] = [
    (lambda x: array.reshape(x, (2, np.prod(x.shape[1:]))), (2, 192)),
    (lambda x: array.pad(x, [(0, 0), (0, 0), (THREE, 0), (0, np.int32(1))]), (2, 3, 11, 9)),
    (lambda x: array.reflection_pad2d(x, THREE), (2, 3, 14, 14)),
    (lambda x: array.same_padding(x, "SAME", "NCHW", THREE, np.int64(1)), (2, 3, 10, 10)),
    (lambda x: array.transpose(x, list(np.argsort([0, 3, 1, 2]))), (2, 8, 8, 3)),
    (lambda x: array.slice_v2(x, [(None, None, None), (np.int64(0), np.int64(1), np.int64(1))]), (2, 1, 8, 8)),
    (lambda x: array.slice(x, [None, np.int64(1), None, None], [None, np.int64(2), None, None]), (2, 2, 8, 8)),
    (lambda x: array.expand_dims(x, np.int64(0)), (1, 2, 3, 8, 8)),
    (lambda x: array.zeros([THREE, np.int32(2)]), (3, 2)),
    (lambda x: array.range(THREE), (3,)),
    (lambda x: array.elem_cnt(x, axis=np.int64(1)), (1,)),
    (lambda x: layers.dense(array.reshape(x, [2, -1]), THREE), (2, 3)),
    (lambda x: layers.conv2d(x, THREE, np.int64(3), np.int64(2), groups=THREE), (2, 3, 3, 3)),
    (lambda x: layers.conv2d(x, 4, 3, padding=[0, 0, THREE, (THREE, 0)]), (2, 4, 12, 9)),
    (lambda x: layers.batch_normalization(x, np.int64(1), HALF, HALF, trainable=np.True_), (2, 3, 8, 8)),
    (lambda x: layers.layer_norm(x, epsilon=HALF), (2, 3, 8, 8)),
    (lambda x: nn.max_pool2d(x, (np.int64(2), np.int32(2)), np.int64(2), "VALID"), (2, 3, 4, 4)),
    (lambda x: nn.GroupNorm(x, THREE), (2, 3, 8, 8)),
    (lambda x: nn.dropout(x, rate=HALF, seed=THREE), (2, 3, 8, 8)),
    (lambda x: nn.leaky_relu(x, HALF), (2, 3, 8, 8)),
    (lambda x: nn.softmax(x, np.int64(1)), (2, 3, 8, 8)),
    (
        lambda x: get_variable(
            "w", [THREE, np.prod(x.shape)], initializer=constant_initializer(HALF), random_seed=THREE
        ),
        (3, 384),
    ),
    (lambda x: x * HALF + np.float64(2), (2, 3, 8, 8)),
]


@pytest.mark.parametrize(("call", "shape"), NUMPY_NUMBERS)
def test_numpy_numbers_are_numbers(call: Callable[..., Any], shape: tuple[int, ...]) -> None:
    """Wherever Python's are taken; nothing of numpy's reaches the graph."""
    state, blobs = trace(Sample("", lambda x: call(x), (X,), None, is_train=True))  # type: ignore[arg-type]
    assert blobs[0].shape == shape and all(type(n) is int for n in blobs[0].shape)
    for node in state.graph.body.nodes:
        tree_map(
            lambda leaf: pytest.fail(f"{leaf!r}") if isinstance(leaf, np.generic) else leaf,
            (node.args, dict(node.kwargs)),
        )


def test_compat_takes_known_formats_only() -> None:
    with pytest.raises(ArgumentError, match="'NCHW' or 'NHWC', got 'nhwc'"):
        compat.pool_default = "nhwc"
    with pytest.raises(AttributeError):
        compat.pol_default = "NHWC"  # type: ignore[attr-defined]
