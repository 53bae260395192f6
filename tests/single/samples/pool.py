"""Samples of ``ops.pool``: pools against windows cut by hand, upsampling, pixel shuffling."""

from __future__ import annotations

from itertools import product

import torch
import torch.nn.functional as F
from sample import Sample, rand
from torch import Tensor

from oneflow import layers, nn


def windows(
    x: Tensor, k: tuple[int, ...], s: tuple[int, ...], before: tuple[int, ...], out: tuple[int, ...], reduce
) -> Tensor:
    """``reduce`` over each window's elements that lie inside x (N, C, spatial...): a formula without any padding."""
    pooled = []
    for place in product(*map(range, out)):
        starts = [p * step - b for p, step, b in zip(place, s, before)]
        cut = x[(slice(None), slice(None), *(slice(max(0, b), b + n) for b, n in zip(starts, k)))]
        pooled.append(reduce(cut.flatten(2)))
    return torch.stack(pooled, -1).reshape(*x.shape[:2], *out)


def largest(x: Tensor) -> Tensor:
    return x.amax(-1)


def mean(x: Tensor) -> Tensor:
    return x.mean(-1)


def nchw(x: Tensor) -> Tensor:
    return x.movedim(-1, 1)


def nhwc(x: Tensor) -> Tensor:
    return x.movedim(1, -1)


X = rand(2, 3, 7, 6)
ROW = rand(2, 3, 7)
CUBE = rand(1, 2, 4, 5, 4)
LAST = rand(2, 7, 6, 3)


def _samples(row: str, pool, reduce) -> list[Sample]:
    return [
        Sample(
            row, lambda x: pool(x, 2, 2, "VALID"), (X,), lambda x: windows(x, (2, 2), (2, 2), (0, 0), (3, 3), reduce)
        ),
        Sample(
            row, lambda x: pool(x, [3], [2], "SAME"), (X,), lambda x: windows(x, (3, 3), (2, 2), (1, 1), (4, 3), reduce)
        ),
        Sample(
            row,
            lambda x: pool(x, 2, 2, "SAME", "NCHW"),
            (X,),
            lambda x: windows(x, (2, 2), (2, 2), (1, 0), (4, 3), reduce),
        ),
        Sample(
            row,
            lambda x: pool(x, 2, 1, "SAME_LOWER"),
            (X,),
            lambda x: windows(x, (2, 2), (1, 1), (1, 1), (7, 6), reduce),
        ),
        Sample(
            row,
            lambda x: pool(x, 2, 1, "SAME_UPPER"),
            (X,),
            lambda x: windows(x, (2, 2), (1, 1), (0, 0), (7, 6), reduce),
        ),
        Sample(
            row,
            lambda x: pool(x, 3, (2, 2), "VALID", ceil_mode=True),
            (X,),
            lambda x: windows(x, (3, 3), (2, 2), (0, 0), (3, 3), reduce),
        ),
        Sample(
            row,
            lambda x: pool(x, 3, 1, [(0, 0), (0, 0), (2, 0), (0, 2)]),
            (X,),
            lambda x: windows(x, (3, 3), (1, 1), (2, 0), (7, 6), reduce),
        ),
        Sample(
            row,
            lambda x: pool(x, 3, 2, "SAME", "NHWC"),
            (LAST,),
            lambda x: nhwc(windows(nchw(x), (3, 3), (2, 2), (1, 1), (4, 3), reduce)),
        ),
    ]


SAMPLES = [
    *_samples("nn.max_pool2d", nn.max_pool2d, largest),
    *_samples("nn.avg_pool2d", nn.avg_pool2d, mean),
    Sample(
        "nn.max_pool1d",
        lambda x: nn.max_pool1d(x, 2, 2, "SAME"),
        (ROW,),
        lambda x: windows(x, (2,), (2,), (1,), (4,), largest),
    ),
    Sample(
        "nn.avg_pool1d",
        lambda x: nn.avg_pool1d(x, 2, 2, "SAME", "NWC"),
        (rand(2, 7, 3),),
        lambda x: nhwc(windows(nchw(x), (2,), (2,), (1,), (4,), mean)),
    ),
    Sample(
        "nn.max_pool3d",
        lambda x: nn.max_pool3d(x, 2, 2, "SAME"),
        (CUBE,),
        lambda x: windows(x, (2, 2, 2), (2, 2, 2), (0, 1, 0), (2, 3, 2), largest),
    ),
    Sample(
        "nn.avg_pool3d",
        lambda x: nn.avg_pool3d(x, 2, 2, "SAME", "NCDHW"),
        (CUBE,),
        lambda x: windows(x, (2, 2, 2), (2, 2, 2), (0, 1, 0), (2, 3, 2), mean),
    ),
    Sample(
        "layers.upsample_2d",
        lambda x: layers.upsample_2d(x, (2, 3)),
        (X,),
        lambda x: x.repeat_interleave(2, 2).repeat_interleave(3, 3),
    ),
    Sample(
        "layers.upsample_2d",
        lambda x: layers.upsample_2d(x, 2, "NHWC", "bilinear"),
        (LAST,),
        lambda x: nhwc(F.interpolate(nchw(x), scale_factor=2, mode="bilinear", align_corners=False)),
    ),
    Sample(
        "layers.upsample_2d",
        lambda x: layers.upsample_2d(x, 2, True, "NCHW", "bilinear"),
        (X,),
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
    ),
    Sample("nn.pixel_shuffle", lambda x: nn.PixelShuffle(x, 2), (rand(2, 8, 3, 4),), lambda x: F.pixel_shuffle(x, 2)),
    Sample(
        "nn.pixel_shuffle",
        lambda x: nn.PixelShufflev2(x, 2, 1),
        (rand(2, 4, 3, 4),),
        lambda x: torch.stack([x[:, 0::2], x[:, 1::2]], 3).reshape(2, 2, 6, 4),
    ),
]
