"""Samples of ``ops.conv``: convolutions, dense, bias_add."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from sample import Sample, rand
from torch import Tensor

from oneflow import layers, nn


@dataclass(frozen=True, eq=False)
class Fixed:
    """An initializer that gives one known array."""

    array: np.ndarray

    def draw(self, spec, generator) -> Tensor:
        assert spec.shape == self.array.shape
        return torch.from_numpy(self.array.copy())


def t(array: np.ndarray) -> Tensor:
    return torch.from_numpy(array)


def padded(x: Tensor, *pairs: int) -> Tensor:
    """x with zeros: before and after for each of the last dimensions, the last one first."""
    return F.pad(x, pairs)


def nhwc(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1)


def nchw(x: Tensor) -> Tensor:
    return x.permute(0, 3, 1, 2)


X = rand(2, 3, 8, 6)
W = rand(4, 3, 3, 3, seed=1, low=-0.5, high=0.5)
B = rand(4, seed=2)
NHWC = rand(2, 8, 6, 3)
W_NHWC = rand(4, 3, 3, 3, seed=3)
GROUPED = rand(4, 2, 3, 3, seed=4)
DW = rand(5, 4, seed=5)


def transposed(x: Tensor, w: Tensor, size: tuple[int, ...], stride: int, before: int, after: int) -> Tensor:
    """The transpose of a convolution, as the gradient of one."""
    image = torch.zeros(size, requires_grad=True)
    out = F.conv2d(padded(image, before, after, before, after), w, stride=stride)
    return torch.autograd.grad(out, image, x, create_graph=True)[0]


SAMPLES = [
    Sample(
        "nn.conv2d", lambda x, w: nn.conv2d(x, w, 1, "VALID"), (X, W), lambda x, w: F.conv2d(x, w), rtol=1e-4, atol=1e-5
    ),
    Sample(
        "nn.conv2d",
        lambda x, w, b: nn.conv2d(x, w, [1, 1], "SAME", bias=b),
        (X, W, B),
        lambda x, w, b: F.conv2d(padded(x, 1, 1, 1, 1), w, b),
        rtol=1e-4,
        atol=1e-5,
    ),
    Sample(
        "nn.conv2d",  # one zero in all: it comes before
        lambda x, w: nn.conv2d(x, w, 2, "same"),
        (X, W),
        lambda x, w: F.conv2d(padded(x, 1, 0, 1, 0), w, stride=2),
        rtol=1e-4,
        atol=1e-5,
    ),
    Sample(
        "nn.conv2d",  # one zero in all: it comes after
        lambda x, w: nn.conv2d(x, w, 2, "SAME_UPPER"),
        (X, W),
        lambda x, w: F.conv2d(padded(x, 0, 1, 0, 1), w, stride=2),
        rtol=1e-4,
        atol=1e-5,
    ),
    Sample(
        "nn.conv2d",
        lambda x, w: nn.compat_conv2d(x, w, 2, "SAME"),
        (X, W),
        lambda x, w: F.conv2d(padded(x, 0, 1, 0, 1), w, stride=2),
        rtol=1e-4,
        atol=1e-5,
    ),
    Sample(
        "nn.conv2d",
        lambda x, w: nn.conv2d(x, w, (1, 2), [0, 0, (2, 1), [0, 3]]),
        (X, W),
        lambda x, w: F.conv2d(padded(x, 0, 3, 2, 1), w, stride=(1, 2)),
        rtol=1e-4,
        atol=1e-5,
    ),
    Sample(
        "nn.conv2d",
        lambda x, w: nn.conv2d(x, w, 1, "SAME", "NCHW", 2),
        (X, W),
        lambda x, w: F.conv2d(padded(x, 2, 2, 2, 2), w, dilation=2),
        rtol=1e-4,
        atol=1e-5,
    ),
    Sample(
        "nn.conv2d",
        lambda x, w, b: nn.conv2d(x, w, 2, "SAME", "NHWC", bias=b),
        (NHWC, W_NHWC, B),
        lambda x, w, b: nhwc(F.conv2d(padded(nchw(x), 1, 0, 1, 0), nchw(w), b, stride=2)),
        rtol=1e-4,
        atol=1e-5,
    ),
    Sample(
        "nn.conv2d",
        lambda x, w: nn.conv2d(x, w, 1, "VALID", "NCHW", None, 2, "grouped"),
        (rand(2, 4, 5, 5), GROUPED),
        lambda x, w: torch.cat([F.conv2d(x[:, :2], w[:2]), F.conv2d(x[:, 2:], w[2:])], 1),
        rtol=1e-4,
        atol=1e-5,
    ),
    Sample(
        "nn.conv1d",
        lambda x, w: nn.conv1d(x, w, 2, "SAME"),
        (rand(2, 3, 8), rand(4, 3, 3, seed=1)),
        lambda x, w: F.conv1d(padded(x, 1, 0), w, stride=2),
        rtol=1e-4,
        atol=1e-5,
    ),
    Sample(
        "nn.conv3d",
        lambda x, w: nn.conv3d(x, w, 1, "SAME"),
        (rand(1, 2, 4, 5, 6), rand(3, 2, 3, 3, 3, seed=1)),
        lambda x, w: F.conv3d(padded(x, 1, 1, 1, 1, 1, 1), w),
        rtol=1e-4,
        atol=1e-5,
    ),
    Sample(
        "nn.conv2d_transpose",
        lambda x, w: nn.conv2d_transpose(x, w, (2, 2, 8, 8), 2, "SAME"),
        (rand(2, 3, 4, 4), rand(3, 2, 5, 5, seed=1)),
        lambda x, w: transposed(x, w, (2, 2, 8, 8), 2, 1, 2),
        rtol=1e-4,
        atol=1e-5,
    ),
    Sample(
        "nn.conv2d_transpose",
        lambda x, w: nn.conv2d_transpose(x, w, (2, 2, 10, 10), 2, "VALID"),
        (rand(2, 3, 4, 4), rand(3, 2, 3, 3, seed=1)),
        lambda x, w: transposed(x, w, (2, 2, 10, 10), 2, 0, 0),
        rtol=1e-4,
        atol=1e-5,
    ),
    Sample(
        "nn.conv2d_transpose",
        lambda x, w: nn.conv2d_transpose(x, w, (2, 8, 8, 2), 2, "SAME_UPPER", "NHWC"),
        (rand(2, 4, 4, 3), rand(3, 5, 5, 2, seed=1)),
        lambda x, w: nhwc(transposed(nchw(x), nchw(w), (2, 2, 8, 8), 2, 1, 2)),
        rtol=1e-4,
        atol=1e-5,
    ),
    Sample("nn.bias_add", lambda x, b: nn.bias_add(x, b), (X, rand(3)), lambda x, b: x + b[:, None, None]),
    Sample("nn.bias_add", lambda x, b: nn.bias_add(x, b, "NHWC"), (NHWC, rand(3)), lambda x, b: x + b),
    Sample(
        "nn.conv2d",
        lambda x: layers.conv2d(
            x, 4, 3, 2, "SAME", activation=nn.relu, kernel_initializer=Fixed(W), bias_initializer=Fixed(B), name="conv"
        ),
        (X,),
        lambda x: F.conv2d(padded(x, 1, 0, 1, 0), t(W), t(B), stride=2).relu(),
        rtol=1e-4,
        atol=1e-5,
    ),
    Sample(
        "nn.conv2d",
        lambda x: layers.conv2d(
            x, 4, (3, 3), data_format="NHWC", use_bias=False, bias_initializer=False, kernel_initializer=Fixed(W_NHWC)
        ),
        (NHWC,),
        lambda x: nhwc(F.conv2d(nchw(x), nchw(t(W_NHWC)))),
        rtol=1e-4,
        atol=1e-5,
    ),
    Sample(
        "nn.conv2d",
        lambda x: layers.conv2d(x, 4, 3, groups=2, use_bias=False, kernel_initializer=Fixed(GROUPED)),
        (rand(2, 4, 5, 5),),
        lambda x: torch.cat([F.conv2d(x[:, :2], t(GROUPED[:2])), F.conv2d(x[:, 2:], t(GROUPED[2:]))], 1),
        rtol=1e-4,
        atol=1e-5,
    ),
    Sample(
        "nn.conv1d", lambda x: layers.conv1d(x, 5, 3), (rand(2, 3, 8),), lambda x: x.new_zeros(2, 5, 6), gradient=False
    ),
    Sample(
        "nn.conv3d",
        lambda x: layers.conv3d(x, 5),
        (rand(2, 3, 4, 4, 4),),
        lambda x: x.new_zeros(2, 5, 4, 4, 4),
        gradient=False,
    ),
    Sample(
        "nn.dense",
        lambda x: layers.dense(x, 5, nn.relu, kernel_initializer=Fixed(DW), bias_initializer=Fixed(rand(5))),
        (rand(3, 4),),
        lambda x: (x @ t(DW).T + t(rand(5))).relu(),
    ),
    Sample(
        "nn.dense",
        lambda x: layers.dense(
            x, 5, lambda y: y * 2.0, use_bias=False, bias_initializer=False, kernel_initializer=Fixed(DW)
        ),
        (rand(2, 3, 4),),
        lambda x: torch.einsum("abf,uf->abu", x, t(DW)) * 2,
    ),
    Sample("nn.dense", lambda x: layers.dense(x, 5), (rand(3, 4),), lambda x: x.new_zeros(3, 5), gradient=False),
]
