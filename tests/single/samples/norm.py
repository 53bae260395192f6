"""Samples of ``ops.norm``."""

from __future__ import annotations

import torch
from conv import Fixed, t
from sample import Sample, rand
from torch import Tensor

from oneflow import layers, nn

X = rand(4, 3, 2, 5)
LAST = rand(4, 2, 5, 3)
C1, C2, C3 = rand(3, seed=1), rand(3, seed=2), rand(3, seed=3, low=0.5, high=2)


def standard(x: Tensor, dims, eps: float) -> Tensor:
    mean = x.mean(dims, keepdim=True)
    return (x - mean) / (x.var(dims, correction=0, keepdim=True) + eps).sqrt()


def by_channel(v) -> Tensor:
    return torch.as_tensor(v)[:, None, None]


def moving(x: Tensor, mean, variance, eps: float) -> Tensor:
    return (x - by_channel(mean)) / (by_channel(variance) + eps).sqrt()


def bn(x, axis, **options):
    return layers.batch_normalization(
        x,
        axis,
        gamma_initializer=Fixed(C1),
        beta_initializer=Fixed(C2),
        moving_mean_initializer=Fixed(C2),
        moving_variance_initializer=Fixed(C3),
        **options,
    )


def learnt(x: Tensor, eps: float = 0.001) -> Tensor:
    return moving(x, C2, C3, eps) * by_channel(C1) + by_channel(C2)


LOOSE = {"rtol": 1e-4, "atol": 1e-5}

SAMPLES = [
    Sample(
        "layers.batch_norm_train",
        lambda x: bn(x, 1, momentum=0.9),
        (X,),
        lambda x: standard(x, (0, 2, 3), 0.001) * by_channel(C1) + by_channel(C2),
        is_train=True,
        **LOOSE,
    ),
    Sample(
        "layers.batch_norm_train",
        lambda x: bn(x, -1, epsilon=0.1),
        (LAST,),
        lambda x: standard(x, (0, 1, 2), 0.1) * t(C1) + t(C2),
        is_train=True,
        **LOOSE,
    ),
    Sample(
        "layers.batch_norm_train",
        lambda x: layers.batch_normalization(x, center=False, scale=False),
        (rand(6, 3),),
        lambda x: standard(x, 0, 0.001),
        is_train=True,
        **LOOSE,
    ),
    Sample(
        "layers.batch_norm_train",
        lambda x, y: layers.batch_normalization_add_relu(x, y, axis=1),
        (X, rand(4, 3, 2, 5, seed=7)),
        lambda x, y: (standard(x, (0, 2, 3), 0.001) + y).relu(),
        is_train=True,
        **LOOSE,
    ),
    Sample(
        "layers.batch_norm_train",
        lambda x: layers.batch_normalization_relu(x, axis=1),
        (X,),
        lambda x: standard(x, (0, 2, 3), 0.001).relu(),
        is_train=True,
        **LOOSE,
    ),
    Sample("layers.batch_norm_infer", lambda x: bn(x, 1), (X,), learnt, **LOOSE),
    Sample("layers.batch_norm_infer", lambda x: bn(x, 1, trainable=False), (X,), learnt, is_train=True, **LOOSE),
    Sample("layers.batch_norm_infer", lambda x: bn(x, 1, training=False), (X,), learnt, is_train=True, **LOOSE),
    Sample(
        "layers.batch_norm_infer",
        lambda x: bn(x, 3),
        (LAST,),
        lambda x: (x - t(C2)) / (t(C3) + 0.001).sqrt() * t(C1) + t(C2),
        **LOOSE,
    ),
    Sample(
        "nn.batch_normalization",
        lambda x, m, v, o, s: nn.batch_normalization(x, m, v, o, s, 1e-3),
        (X, C1, C3, C2, C1),
        lambda x, m, v, o, s: moving(x, m, v, 1e-3) * by_channel(s) + by_channel(o),
        **LOOSE,
    ),
    Sample(
        "nn.batch_normalization",
        lambda x, m, v: nn.batch_normalization(x, m, v, None, None, 1e-3, axis=-1),
        (LAST, C1, C3),
        lambda x, m, v: (x - m) / (v + 1e-3).sqrt(),
        **LOOSE,
    ),
    Sample("nn.layer_norm", lambda x: layers.layer_norm(x), (X,), lambda x: standard(x, (1, 2, 3), 1e-5), **LOOSE),
    Sample(
        "nn.layer_norm",
        lambda x, g, b: nn.layer_norm(x, g, b, begin_norm_axis=2),
        (X, rand(5, seed=4), rand(5, seed=5)),
        lambda x, g, b: standard(x, (2, 3), 1e-5) * g + b,
        **LOOSE,
    ),
    Sample(
        "nn.layer_norm",
        lambda x, g, b: nn.layer_norm(x, g, b, begin_norm_axis=-1, epsilon=0.1),
        (rand(3, 5), rand(5, seed=4), rand(5, seed=5)),
        lambda x, g, b: standard(x, -1, 0.1) * g + b,
        **LOOSE,
    ),
    Sample(
        "nn.group_norm",
        lambda x: nn.GroupNorm(x, 2),
        (rand(2, 4, 3),),
        lambda x: standard(x.reshape(2, 2, 6), -1, 1e-5).reshape(2, 4, 3),
        **LOOSE,
    ),
    Sample(
        "nn.group_norm",
        lambda x: nn.InstanceNorm2d(x, affine=False),
        (X,),
        lambda x: standard(x, (2, 3), 1e-5),
        **LOOSE,
    ),
    Sample("nn.group_norm", lambda x: nn.InstanceNorm1d(x), (rand(2, 4, 5),), lambda x: standard(x, -1, 1e-5), **LOOSE),
    Sample(
        "nn.group_norm",
        lambda x: nn.InstanceNorm3d(x),
        (rand(2, 2, 3, 2, 2),),
        lambda x: standard(x, (2, 3, 4), 1e-5),
        **LOOSE,
    ),
    Sample(
        "nn.moments",
        lambda x: nn.moments(x, [0, 2, 3]),
        (X,),
        lambda x: (x.mean((0, 2, 3)), (x - x.mean((0, 2, 3), keepdim=True)).square().mean((0, 2, 3))),
        **LOOSE,
    ),
    Sample(
        "nn.moments",
        lambda x: nn.moments(x, 0),
        (rand(6),),
        lambda x: (x.mean(0, True), x.var(0, correction=0, keepdim=True)),
        **LOOSE,
    ),
]
