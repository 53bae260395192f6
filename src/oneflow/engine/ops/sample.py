"""Random choice. Every result is a pure function of (seed, step, index), whatever device or part computes it."""

from __future__ import annotations

import torch
from torch import Tensor

from oneflow.engine.ops.elementwise import require_blob, require_float
from oneflow.engine.ops.kernels import counter_random
from oneflow.engine.ops.row import Family

ROWS = Family()


@ROWS.op("random.bernoulli", random=True)
def bernoulli(x: Tensor, dtype: torch.dtype | None, *, seed: int, step: Tensor) -> Tensor:
    """1 with the probability that x holds, 0 otherwise; in x's dtype if none is given."""
    require_float(x)
    return (counter_random.uniform(x.shape, seed, step) < x).to(dtype or x.dtype)


@ROWS.op("random.coin_flip", random=True)
def coin_flip(*, batch_size: int, probability: float, seed: int, step: Tensor) -> Tensor:
    """1 with the given probability, 0 otherwise: int8 of shape (batch_size,)."""
    return counter_random.bernoulli((batch_size,), probability, seed, step).to(torch.int8)


def _permutation(length: int, seed: int, step: Tensor) -> Tensor:
    """The stable order of random keys. Equal keys are too rare to matter: about length**2 / 2**33 of them."""
    return torch.sort(counter_random.random_bits((length,), seed, step), stable=True).indices


@ROWS.op("random.shuffle", random=True)
def shuffle(x: Tensor, *, seed: int, step: Tensor) -> Tensor:
    """x with its first axis in random order."""
    return require_blob(x).index_select(0, _permutation(x.shape[0], seed, step))


@ROWS.op("random.generate_random_batch_permutation_indices", random=True)
def batch_permutation_indices(x: Tensor, *, seed: int, step: Tensor) -> Tensor:
    """A random order of x's first axis: int32 of shape (x.shape[0],)."""
    return _permutation(require_blob(x).shape[0], seed, step).to(torch.int32)
