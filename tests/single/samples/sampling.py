"""Samples of ``oneflow.engine.ops.sample``: what each op makes of the random bits of (seed, step, index)."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from sample import Sample, rand

from oneflow import random
from oneflow.engine.core import dtype as dtypes
from oneflow.engine.ops.kernels.counter_random import random_bits


def default_seed(name: str) -> int:
    """The seed of an op that was given none, in a job whose random seed is 0."""
    return int.from_bytes(hashlib.blake2b(f"0\0{name}".encode(), digest_size=8).digest(), "little") >> 1


def _bits(count: int, seed: int) -> np.ndarray:
    return random_bits((count,), seed, torch.zeros(1, dtype=torch.int64)).numpy().astype(np.int64)


def _fractions(count: int, seed: int) -> torch.Tensor:
    return torch.from_numpy((_bits(count, seed) % 2**24).astype(np.float32) / 2**24)


def _order(count: int, seed: int) -> np.ndarray:
    return np.argsort(_bits(count, seed), kind="stable")


def _flips(count: int, seed: int, probability: float) -> np.ndarray:
    return ((_bits(count, seed) + 2**31) / 2**32 >= 1 - probability).astype(np.int8)


SAMPLES = [
    Sample(
        "random.bernoulli",
        lambda x: random.bernoulli(x, seed=3),
        (rand(4, 5, low=0, high=1),),
        lambda x: (_fractions(20, 3).reshape(4, 5) < x).float(),
        gradient=False,
    ),
    Sample(
        "random.bernoulli",
        lambda x: random.bernoulli(x, dtype=dtypes.int8, name="drawn"),
        (rand(9, low=0, high=1),),
        lambda x: (_fractions(9, default_seed("drawn")) < x).to(torch.int8),
        gradient=False,
    ),
    Sample(
        "random.bernoulli",
        lambda x: random.bernoulli(x),
        (np.array([0, 1, 0, 1, 1, 0], np.float32),),
        lambda x: x,
        gradient=False,
    ),
    Sample("random.coin_flip", lambda: random.CoinFlip(16, seed=5), (), lambda: _flips(16, 5, 0.5), gradient=False),
    Sample(
        "random.coin_flip",
        lambda: random.coin_flip(16, probability=0.25),
        (),
        lambda: _flips(16, default_seed("CoinFlip"), 0.25),
        gradient=False,
    ),
    Sample(
        "random.coin_flip",
        lambda: (random.coin_flip(3, probability=1), random.coin_flip(3, probability=0)),
        (),
        lambda: (np.ones(3, np.int8), np.zeros(3, np.int8)),
        gradient=False,
    ),
    Sample(
        "random.shuffle",
        lambda x: random.shuffle(x, seed=1),
        (rand(7, 2),),
        lambda x: x[torch.from_numpy(_order(7, 1))],
    ),
    Sample(
        "random.generate_random_batch_permutation_indices",
        lambda x: random.generate_random_batch_permutation_indices(x, seed=2),
        (rand(7, 2),),
        lambda x: _order(7, 2).astype(np.int32),
        gradient=False,
    ),
]
