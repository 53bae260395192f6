"""``flow.random``: ops that draw anew at every step.

Without ``seed`` an op's seed follows from the job's random seed and the op's name; draws differ from step to step and
are the same in every run and on every placement.
"""

from __future__ import annotations

import secrets
from typing import Any

from oneflow.engine.core.dtype import as_dtype
from oneflow.engine.core.number import number, whole
from oneflow.engine.core.number import seed as checked_seed
from oneflow.engine.ir.blob import Blob, emit
from oneflow.engine.ir.trace import Trace, current, require_trace
from oneflow.engine.ops import sample as rows
from oneflow.engine.ops.kernels.counter_random import stable_seed
from oneflow.engine.ops.row import Op

__all__ = ["CoinFlip", "bernoulli", "coin_flip", "gen_seed", "generate_random_batch_permutation_indices", "shuffle"]


def bernoulli(x: Blob, seed: int | None = None, dtype: Any = None, name: str | None = None) -> Blob:
    """1 with the probability that ``x`` holds, 0 otherwise, in ``dtype`` (x's own if not given)."""
    return _draw(rows.bernoulli, x, dtype=None if dtype is None else as_dtype(dtype).torch, seed=seed, name=name)


def shuffle(value: Blob, seed: int | None = None, name: str | None = None) -> Blob:
    """``value`` with its first axis in random order."""
    return _draw(rows.shuffle, value, seed=seed, name=name)


def generate_random_batch_permutation_indices(value: Blob, seed: int | None = None, name: str | None = None) -> Blob:
    """A random order of the first axis of ``value``: int32, for ``flow.gather``."""
    return _draw(rows.batch_permutation_indices, value, seed=seed, name=name)


def coin_flip(batch_size: int = 1, seed: int | None = None, probability: float = 0.5, name: str | None = None) -> Blob:
    """1 with ``probability``, 0 otherwise: int8 of shape (batch_size,). Unnamed flips are "CoinFlip", "CoinFlip_1"
    ..."""
    size, chance = whole("coin_flip's batch_size", batch_size, above=0), number("probability", probability, 0, 1)
    trace = require_trace("flow.random.coin_flip")
    name = trace.auto_name("CoinFlip", first_plain=True) if name is None else name
    return _draw(rows.coin_flip, batch_size=size, probability=chance, seed=seed, name=name)


CoinFlip = coin_flip


def gen_seed(seed: int | None = None) -> tuple[int, bool]:
    """(seed, whether it was given). One that was not given is another at each call: in a job by its own seed, outside
    by chance."""
    if seed is not None:
        return checked_seed(seed), True
    trace = current()
    return (secrets.randbits(31) if trace is None else _seed_of(trace, trace.auto_name("gen_seed"))), False


def _draw(op: Op, *args: Any, seed: int | None, name: str | None, **attributes: Any) -> Blob:
    trace = require_trace(f"flow.{op.name}")
    name = trace.auto_name(op.label) if name is None else name
    seed = _seed_of(trace, name) if seed is None else checked_seed(seed)
    return emit(op, *args, name=name, seed=seed, step=Blob(trace.step()), **attributes)


def _seed_of(trace: Trace, name: str) -> int:
    return stable_seed(trace.settings.random_seed, trace.full_name(name))
