"""A sample of one op row: how a user calls it, on what, and what must come out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Sample:
    """``call`` uses the public API on blobs; ``expect`` computes the same with plain torch or numpy formulas on
    tensors.

    ``inputs`` are numpy arrays. With ``gradient`` the gradients of all float inputs are compared as well.
    """

    row: str
    call: Callable[..., Any]
    inputs: tuple[np.ndarray, ...]
    expect: Callable[..., Any]
    gradient: bool = True
    is_train: bool = False
    rtol: float = 1e-5
    atol: float = 1e-6


def rand(*shape: int, low: float = -2.0, high: float = 2.0, seed: int = 0) -> np.ndarray:
    """Float32 values, away from ties and corners by chance, the same every time."""
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def ints(*shape: int, low: int = 0, high: int = 5, seed: int = 0, dtype: Any = np.int32) -> np.ndarray:
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)
