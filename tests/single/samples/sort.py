"""Samples of ``oneflow.engine.ops.sort``."""

from __future__ import annotations

import numpy as np
import torch
from sample import Sample, ints, rand

from oneflow import array


def _ordered(x, axis=-1, sign=1):
    """x gathered by numpy's own order."""
    order = np.argsort(sign * x.detach().numpy(), axis=axis, kind="stable")
    return torch.gather(x, axis, torch.from_numpy(order))


SAMPLES = [
    Sample("sort", lambda x: array.sort(x), (rand(3, 5),), _ordered),
    Sample(
        "sort", lambda x: array.sort(x, axis=0, direction="DESCENDING"), (rand(3, 5),), lambda x: _ordered(x, 0, -1)
    ),
    Sample(
        "sort",
        lambda x: array.sort(x, -2),
        (ints(3, 5, high=50),),
        lambda x: np.sort(x.numpy(), axis=0),
        gradient=False,
    ),
    Sample(
        "argsort",
        lambda x: array.argsort(x),
        (rand(3, 5),),
        lambda x: np.argsort(x.numpy()).astype(np.int32),
        gradient=False,
    ),
    Sample(
        "argsort",
        lambda x: array.argsort(x, 0, "DESCENDING"),
        (np.array([3, 1, 3, 2], np.int32),),
        lambda x: np.array([0, 2, 3, 1], np.int32),
        gradient=False,
    ),
]
