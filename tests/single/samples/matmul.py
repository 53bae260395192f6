"""Samples of ops/matmul.py."""

from __future__ import annotations

import numpy as np
import torch
from sample import Sample, ints, rand

from oneflow import linalg
from oneflow import math as fmath

SQUARE = rand(2, 3, 3)


def lower(x, diagonal, fill):
    keep = torch.from_numpy(np.subtract.outer(np.arange(x.shape[-2]), np.arange(x.shape[-1])) >= -diagonal)
    return torch.where(keep, x, torch.full_like(x, fill))


PRODUCTS = [
    Sample("matmul", linalg.matmul, (rand(2, 3), rand(3, 4, seed=1)), lambda a, b: torch.einsum("ij,jk->ik", a, b)),
    Sample(
        "matmul",
        lambda a, b: linalg.matmul(a, b, transpose_a=True, alpha=0.5),
        (rand(3, 2), rand(3, 4, seed=1)),
        lambda a, b: 0.5 * torch.einsum("ji,jk->ik", a, b),
    ),
    Sample(
        "matmul",
        lambda a, b: linalg.matmul(a, b, False, True),
        (rand(2, 3), rand(4, 3, seed=1)),
        lambda a, b: torch.einsum("ij,kj->ik", a, b),
    ),
    Sample(
        "matmul",
        lambda a, b: linalg.matmul(a, b, True, True, alpha=2),
        (rand(5, 3, 2), rand(5, 4, 3, seed=1)),
        lambda a, b: 2 * torch.einsum("nji,nkj->nik", a, b),
    ),
    Sample(
        "matmul",
        linalg.matmul,
        (rand(2, 2, 3, 4), rand(2, 2, 4, 5, seed=1)),
        lambda a, b: torch.einsum("mnij,mnjk->mnik", a, b),
    ),
    Sample(
        "matmul",
        lambda a, b: linalg.matmul(a, b, transpose_b=True),
        (rand(2, 3, 4), rand(5, 4, seed=1)),
        lambda a, b: torch.einsum("nij,kj->nik", a, b),
    ),
    Sample(
        "matmul",
        lambda a, b: linalg.matmul(a, b, transpose_a=True),
        (rand(2, 4, 3), rand(4, 5, seed=1)),
        lambda a, b: torch.einsum("nji,jk->nik", a, b),
    ),
]

TRIANGLES = [
    Sample("math.tril", fmath.tril, (SQUARE,), lambda x: lower(x, 0, 0.0)),
    Sample("math.tril", lambda x: fmath.tril(x, diagonal=1, fill_value=-5), (SQUARE,), lambda x: lower(x, 1, -5.0)),
    Sample("math.tril", lambda x: fmath.tril(x, -1, 7), (ints(3, 5),), lambda x: lower(x, -1, 7), gradient=False),
    Sample(
        "math.fused_scale_tril",
        lambda x: fmath.fused_scale_tril(x, 0, -9, 0.5),
        (SQUARE,),
        lambda x: lower(x * 0.5, 0, -9.0),
    ),
]

SAMPLES = PRODUCTS + TRIANGLES
