"""Samples of ops/reduce.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sample import Sample, ints, rand

from oneflow import math as fmath
from oneflow.engine.core import dtype as dtypes

X = rand(2, 3, 4)
I = ints(2, 3, low=-4, high=5)
FLAGS = np.array([[0, 0, 0], [0, 1, 0], [1, 1, 1]], np.int8)
SCORES = np.array([[1, 3, 2], [5, 5, 0], [2, 2, 2]], np.float32)


def over(axes: tuple[int, ...], keepdims: bool, vector: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A reference for reductions of a (2, 3, 4) tensor: ``vector`` reduces rows of a matrix that holds the reduced
    elements."""
    kept = [d for d in range(3) if d not in axes]

    def reference(x: Any) -> Any:
        rows = x.permute(*kept, *axes).reshape(*[x.shape[d] for d in kept], -1)
        out = vector(rows)
        shape = [1 if d in axes else x.shape[d] for d in range(3)] if keepdims else [x.shape[d] for d in kept] or [1]
        return out.reshape(shape)

    return reference


def variance(rows):
    return (rows * rows).mean(-1) - rows.mean(-1) ** 2


VECTORS: dict[str, tuple[Callable[..., Any], Callable[[Any], Any]]] = {
    "reduce_sum": (fmath.reduce_sum, lambda r: torch.stack(r.unbind(-1)).sum(0)),
    "reduce_mean": (fmath.reduce_mean, lambda r: r.mean(-1)),
    "reduce_max": (fmath.reduce_max, lambda r: r.sort(-1).values[..., -1]),
    "reduce_min": (fmath.reduce_min, lambda r: r.sort(-1).values[..., 0]),
    "reduce_prod": (fmath.reduce_prod, lambda r: r.cumprod(-1)[..., -1]),
    "reduce_variance": (fmath.reduce_variance, variance),
    "reduce_std": (fmath.reduce_std, lambda r: variance(r) ** 0.5),
    "reduce_euclidean_norm": (fmath.reduce_euclidean_norm, lambda r: torch.linalg.vector_norm(r, dim=-1)),
    "reduce_logsumexp": (fmath.reduce_logsumexp, lambda r: torch.log(torch.exp(r).sum(-1))),
}

AXES: list[tuple[Any, tuple[int, ...], bool]] = [
    (None, (0, 1, 2), False),
    (None, (0, 1, 2), True),
    (1, (1,), False),
    (-1, (2,), True),
    ([0, 2], (0, 2), False),
    ((0, -1), (0, 2), True),
    ([0, 1, 2], (0, 1, 2), False),
]


def _sweep(name: str, axis: Any, dims: tuple[int, ...], keepdims: bool) -> Sample:
    call, vector = VECTORS[name]
    return Sample(
        f"math.{name}", lambda x: call(x, axis, keepdims), (X,), over(dims, keepdims, vector), rtol=1e-4, atol=1e-5
    )


SWEEP = [_sweep(name, *axes) for name in VECTORS for axes in AXES]

PARTICULAR = [
    Sample(
        "math.reduce_sum",
        fmath.reduce_sum,
        (I,),
        lambda x: torch.tensor([int(np.sum(x.numpy()))], dtype=torch.int32),
        gradient=False,
    ),
    Sample("math.reduce_sum", lambda x: fmath.reduce_sum(x, axis=0), (rand(5),), lambda x: x.sum().reshape(1)),
    Sample("math.reduce_sum", lambda x: fmath.reduce_sum(x, axis=[]), (X,), lambda x: x * 1),
    Sample(
        "math.reduce_max",
        fmath.two_stage_reduce_max,
        (I,),
        lambda x: torch.tensor([int(np.max(x.numpy()))], dtype=torch.int32),
        gradient=False,
    ),
    Sample(
        "math.reduce_min",
        lambda x: fmath.two_stage_reduce_min(x, [1]),
        (I,),
        lambda x: torch.from_numpy(np.min(x.numpy(), 1)),
        gradient=False,
    ),
    # Equal elements share the gradient of their maximum.
    Sample("math.reduce_max", lambda x: fmath.reduce_max(x, 1), (SCORES[2:],), lambda x: x.mean(1)),
    Sample(
        "math.reduce_prod",
        lambda x: fmath.reduce_prod(x, 1),
        (I,),
        lambda x: x[:, 0] * x[:, 1] * x[:, 2],
        gradient=False,
    ),
    Sample("math.reduce_prod", lambda x: fmath.reduce_prod(x, 1), (SCORES,), lambda x: x[:, 0] * x[:, 1] * x[:, 2]),
    Sample(
        "math.reduce_any", fmath.reduce_any, (FLAGS,), lambda x: torch.tensor([1], dtype=torch.int8), gradient=False
    ),
    Sample(
        "math.reduce_any",
        lambda x: fmath.reduce_any(x, 1),
        (FLAGS,),
        lambda x: torch.tensor([0, 1, 1], dtype=torch.int8),
        gradient=False,
    ),
    Sample(
        "math.reduce_all", fmath.reduce_all, (FLAGS,), lambda x: torch.tensor([0], dtype=torch.int8), gradient=False
    ),
    Sample(
        "math.reduce_all",
        lambda x: fmath.reduce_all(x, [1], True),
        (FLAGS,),
        lambda x: torch.tensor([[0], [0], [1]], dtype=torch.int8),
        gradient=False,
    ),
    Sample(
        "math.reduce_logsumexp",
        fmath.reduce_logsumexp,
        (np.float32([1000, 1000]),),
        lambda x: x.mean().reshape(1) + np.log(2.0),
        rtol=1e-4,
    ),
    Sample(
        "math.reduced_shape_elem_cnt",
        fmath.reduced_shape_elem_cnt,
        (X,),
        lambda x: torch.tensor([24.0]),
        gradient=False,
    ),
    Sample(
        "math.reduced_shape_elem_cnt",
        lambda x: fmath.reduced_shape_elem_cnt(x, axis=[0, -1], dtype=dtypes.int32),
        (X,),
        lambda x: torch.tensor([8], dtype=torch.int32),
        gradient=False,
    ),
]

NORMALIZE = [
    Sample(
        "math.l2_normalize",
        lambda x: fmath.l2_normalize(x, 1),
        (X,),
        lambda x: x / torch.sqrt((x * x).sum(1, keepdim=True)),
    ),
    Sample(
        "math.l2_normalize",
        lambda x: fmath.l2_normalize(x, [0, -1]),
        (X,),
        lambda x: x / torch.sqrt((x * x).sum((0, 2), keepdim=True)),
    ),
    Sample("math.l2_normalize", fmath.l2_normalize, (X,), lambda x: x / torch.sqrt((x * x).sum())),
    Sample("math.l2_normalize", lambda x: fmath.l2_normalize(x, 0, epsilon=1e6), (X,), lambda x: x / 1e3),
]


def int32(values: Any) -> Any:
    return torch.from_numpy(np.array(values, np.int32))


def place_of_largest(x, axis):
    return int32(np.argmax(x.detach().numpy(), axis))


def places_by_value(x, k, axis):
    return int32(np.take(np.argsort(-x.detach().numpy(), axis=axis, kind="stable"), range(k), axis=axis))


PLACES = [
    Sample("math.argmax", fmath.argmax, (X,), lambda x: place_of_largest(x, -1), gradient=False),
    Sample("math.argmax", lambda x: fmath.argmax(x, axis=0), (X,), lambda x: place_of_largest(x, 0), gradient=False),
    Sample("math.argmax", fmath.argmax, (rand(7),), lambda x: int32([np.argmax(x.numpy())]), gradient=False),
    Sample("math.argmax", fmath.argmax, (SCORES,), lambda x: int32([1, 0, 0]), gradient=False),
    Sample(
        "math.top_k", lambda x: fmath.top_k(x, 2), (SCORES,), lambda x: int32([[1, 2], [0, 1], [0, 1]]), gradient=False
    ),
    Sample("math.top_k", fmath.top_k, (X,), lambda x: places_by_value(x, 1, -1), gradient=False),
    Sample(
        "math.top_k",
        lambda x: fmath.top_k(x, k=3, sorted=False),
        (X,),
        lambda x: places_by_value(x, 3, -1),
        gradient=False,
    ),
    Sample("math.top_k", lambda x: fmath.top_k(x, 1, 2), (X,), lambda x: places_by_value(x, 2, 1), gradient=False),
    Sample("math.top_k", lambda x: fmath.top_k(x, 2, True), (X,), lambda x: places_by_value(x, 2, -1), gradient=False),
    Sample(
        "math.top_k",
        lambda x: fmath.top_k(x, k=99),
        (SCORES,),
        lambda x: places_by_value(x, x.shape[-1], -1),
        gradient=False,
    ),
    Sample(
        "math.top_k", lambda x: fmath.top_k(x, axis=1, k=2), (X,), lambda x: places_by_value(x, 2, 1), gradient=False
    ),
    Sample(
        "math.in_top_k",
        lambda t, p: fmath.in_top_k(t, p, 1),
        (ints(3, low=1, high=2), SCORES),
        lambda t, p: torch.tensor([1, 1, 1], dtype=torch.int8),
        gradient=False,
    ),
    Sample(
        "math.in_top_k",
        lambda t, p: fmath.in_top_k(t, p, k=2),
        (np.array([0, 2, 7], np.int64), SCORES),
        lambda t, p: torch.tensor([0, 0, 0], dtype=torch.int8),
        gradient=False,
    ),
    Sample(
        "math.in_top_k",
        lambda t, p: fmath.in_top_k(t, p, k=2),
        (np.array([0, 1, -1], np.int32), np.float32([[1, np.nan], [0, 1], [0, 1]])),
        lambda t, p: torch.tensor([0, 1, 0], dtype=torch.int8),
        gradient=False,
    ),
]

SAMPLES = SWEEP + PARTICULAR + NORMALIZE + PLACES
