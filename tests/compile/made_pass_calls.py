"""Calls of the ops that passes put into programs, and of ops without rules that read some operand by its pointer."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from made_calls import floats, ints, signed
from traced import Executed, made

from oneflow.engine.ops.cpu import (
    fused_norm,  # noqa: F401 - they register their ops
    winograd,  # noqa: F401 - they register their ops
)
from oneflow.engine.ops.kernels import cross_entropy  # noqa: F401 - they register their ops

aten, mkldnn, oneflow = torch.ops.aten, torch.ops.mkldnn, torch.ops.oneflow


def own_calls() -> list[Executed]:
    """The ops of the namespace ``oneflow``."""
    labels = torch.tensor([0, 6, 3, -100, 2])
    reduced = (labels, 1, -100, torch.tensor(4.0))
    calls = [
        made(oneflow.cross_entropy_backward.default, signed(5, 7).log_softmax(1), signed(), *reduced),
        made(oneflow.layout.default, signed(5, 6), "S(0)", "B"),
        made(oneflow.random_bits.default, [5, 6], 42, torch.tensor([7])),
        made(oneflow.random_bits_part.default, [5, 6], [1, 0], [2, 6], 42, torch.tensor([7])),
    ]
    for count in (4, 1):
        images, other, vector = signed(count, 32, 6, 6), floats(count, 32, 6, 6), floats(32)
        arguments = images, other, vector, signed(32), signed(32), floats(32), 0.3, 1e-3, True
        forward = made(oneflow.batch_norm_relu.default, *arguments)
        gradient = signed(count, 32, 6, 6), other, forward.result[0], images, vector, *forward.result[1:], 1e-3, True
        calls += [forward, made(oneflow.batch_norm_relu_backward.default, *gradient)]
        large, filters = signed(count, 32, 20, 20), signed(32, 32, 3, 3)
        calls += [
            made(oneflow.winograd_convolution.default, large, filters, signed(32), [1, 1]),
            made(
                oneflow.winograd_convolution_backward.default,
                floats(count, 32, 20, 20),
                large,
                filters,
                [32],
                [1, 1],
                [True] * 3,
            ),
        ]
    return calls


def onednn_calls() -> list[Executed]:
    """Ops of oneDNN; a build of torch may lack them."""
    if not torch.backends.mkldnn.is_available():
        return []
    how = [1, 1], [1, 1], [1, 1], 1
    calls = [
        made(mkldnn._linear_pointwise.default, signed(5, 6), signed(7, 6), bias, "none", [], "")
        for bias in (None, signed(7))
    ]
    for count in (4, 1):
        images, filters = signed(count, 6, 5, 5), signed(8, 6, 3, 3)
        added = floats(count, 8, 5, 5)
        calls += [
            made(mkldnn._convolution_pointwise.default, images, filters, signed(8), *how, "none", [], ""),
            made(
                mkldnn._convolution_pointwise.binary,
                *(images, added, filters, signed(8), *how, "add", 1.0, None, [], ""),
            ),
        ]
    return calls


def ruleless_calls() -> list[Executed]:
    """Ops that only run on whole tensors."""
    images, volumes = signed(3, 4, 9, 9), signed(3, 4, 6, 6, 6)
    small, smaller = torch.rand(3, 4, 2), torch.rand(3, 4, 3)
    points, labels = signed(5, 6), ints(3, 9, 9, high=4)
    calls = [
        made(aten.median.dim, points, 0),
        made(aten.nanmedian.dim, points, 1),
        made(aten.nll_loss2d_backward.default, signed(), images, labels, None, 1, -100, torch.tensor(243.0)),
        *_embedding_bags(),
    ]
    for forward, backward, x, *arguments in (
        (aten.adaptive_max_pool3d, aten.adaptive_max_pool3d_backward, volumes, [3, 2, 2]),
        (aten.fractional_max_pool2d, aten.fractional_max_pool2d_backward, images, [2, 2], [3, 3], small),
        (aten.fractional_max_pool3d, aten.fractional_max_pool3d_backward, volumes, [2, 2, 2], [3, 3, 3], smaller),
    ):
        pooled, indices = forward.default(x, *arguments)
        calls.append(made(backward.default, signed(*pooled.shape), x, *arguments[:2][: len(arguments) - 1], indices))
    distances = made(aten._pdist_forward.default, points, 2.0)
    gradient = signed(*distances.result.shape)
    return [*calls, distances, made(aten._pdist_backward.default, gradient, points, 2.0, distances.result)]


def _embedding_bags() -> Iterator[Executed]:
    indices, offsets = ints(8, high=7), torch.tensor([0, 3, 5])
    forward = made(aten._embedding_bag.default, signed(7, 6), indices, offsets, False, 2)
    yield forward
    yield made(
        aten._embedding_bag_backward.default,
        signed(3, 6),
        indices,
        offsets,
        *forward.result[1:],
        7,
        False,
        2,
        False,
        None,
    )


FAMILIES = {"ops of passes": own_calls, "oneDNN": onednn_calls, "ops without rules": ruleless_calls}
