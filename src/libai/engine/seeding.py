"""Seeds by iteration, so that a resumed run draws the same random numbers as an uninterrupted one."""

from __future__ import annotations

import random

import numpy as np

import oneflow as flow

_STRIDE = 0x9E3779B1  # spreads the seeds of consecutive iterations


def seed_run(seed: int, rank: int) -> None:
    """Seeds all generators before anything is built; each rank gets a different seed."""
    flow.manual_seed(seed + rank)
    np.random.seed((seed + rank) % 2**32)
    random.seed(seed + rank)


def seed_iteration(seed: int, iteration: int, of_torch: bool) -> None:
    """Seeds the generators for one iteration.

    Args:
        seed: The seed of the run.
        iteration: The iteration.
        of_torch: Whether to seed torch's generator too. A graph counts its draws itself, from the seed of the run.
    """
    number = (seed + (iteration + 1) * _STRIDE) % 2**32
    np.random.seed(number)
    random.seed(number)
    if of_torch:
        flow.manual_seed(number)
