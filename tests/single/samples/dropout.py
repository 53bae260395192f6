"""Samples of ``ops.dropout``, against the hash written with Python integers."""

from __future__ import annotations

import numpy as np
import torch
from sample import Sample, rand

from oneflow import nn

M32, M64 = 2**32 - 1, 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix64(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M64
    return z ^ (z >> 31)


def bits(index: int, seed: int, step: int) -> int:
    """The 32 random bits of one element."""
    key = mix64((step * GOLDEN + mix64((seed + GOLDEN) & M64)) & M64)
    x = (index * 0x9E3779B1 + key) & M32
    x = ((x ^ (x >> 16)) * 0x21F0AAAD + (key >> 32)) & M32
    x = ((x ^ (x >> 15)) * 0xD35A2D97) & M32
    return x ^ (x >> 15)


def mask(shape: tuple[int, ...], rate: float, seed: int, step: int = 0) -> np.ndarray:
    """1 where the bits, read as a signed number, lie in the upper part 1 - rate of their range."""
    drawn = np.array([bits(i, seed, step) for i in range(int(np.prod(shape)))], np.uint32).view(np.int32)
    return (drawn >= round(rate * 2**32) - 2**31).reshape(shape).astype(np.int8)


X = rand(40, 60)

SAMPLES = [
    Sample(
        "nn.dropout",
        lambda x: nn.dropout(x, 0.3, seed=7, name="drop"),
        (X,),
        lambda x: x * torch.from_numpy(mask((40, 60), 0.3, 7)) / 0.7,
        is_train=True,
    ),
    Sample(
        "nn.dropout",
        lambda x: nn.dropout(x, rate=0.5, seed=-3),
        (X,),
        lambda x: x * torch.from_numpy(mask((40, 60), 0.5, -3)) * 2,
        is_train=True,
    ),
    Sample(
        "nn.random_mask_like",
        lambda x: nn.random_mask_like(x, 0.8, seed=2**62),
        (X,),
        lambda x: mask((40, 60), 0.8, 2**62),
        gradient=False,
    ),
]
