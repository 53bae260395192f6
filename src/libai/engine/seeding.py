"""Random numbers as a function of seed and iteration, so that a run that was resumed draws what it would have drawn."""

from __future__ import annotations

import random

import numpy as np

import oneflow as flow

_STRIDE = 0x9E3779B1  # far apart for neighbouring iterations


def seed_run(seed: int, rank: int) -> None:
    """What a program does before it builds anything; each rank has a seed of its own."""
    flow.manual_seed(seed + rank)
    np.random.seed((seed + rank) % 2**32)
    random.seed(seed + rank)


def seed_iteration(seed: int, iteration: int, of_torch: bool) -> None:
    """The generators for one iteration. ``of_torch``: torch's too; a graph counts by itself, from the seed that the run
    began with."""
    number = (seed + (iteration + 1) * _STRIDE) % 2**32
    np.random.seed(number)
    random.seed(number)
    if of_torch:
        flow.manual_seed(number)
