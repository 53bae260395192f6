"""Dropout of ``flow.nn``, and the softmax before it that ``flow.math`` has as well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oneflow.engine.core.errors import DTypeError, UnsupportedError
from oneflow.engine.core.number import number
from oneflow.engine.core.number import seed as checked_seed
from oneflow.engine.ir.blob import Blob, emit
from oneflow.engine.ir.trace import require_trace
from oneflow.engine.ops import activation
from oneflow.engine.ops import dropout as rows
from oneflow.engine.ops.kernels.counter_random import stable_seed
from oneflow.engine.ops.row import Op
from oneflow.math._matrix import Number, fused_scale_tril


def dropout(
    x: Blob,
    rate: float | None = None,
    noise_shape: Sequence[int] | None = None,
    seed: int | None = None,
    name: str | None = None,
) -> Blob:
    """In train jobs: x with a part ``rate`` of its elements 0 and the others divided by 1 - rate. In predict jobs: x
    itself.

    Which elements are dropped follows from seed, step and index alone, so it does not depend on the placement. Without
    ``seed`` the seed follows from the job's random seed and the op's name.
    """
    trace = require_trace("flow.nn.dropout")
    probability = number("dropout's rate", rate, 0, below=1)
    _check_noise_shape(noise_shape, x)
    if not trace.is_train or probability == 0:
        return x
    return _masked(rows.dropout, x, probability, seed, name)


def random_mask_like(
    like: Blob, rate: float, seed: int | None = None, noise_shape: Sequence[int] | None = None, name: str | None = None
) -> Blob:
    """Int8 of the shape of ``like``: 0 with probability ``rate``, else 1; in every job, and drawn anew at every
    step."""
    _check_noise_shape(noise_shape, like)
    return _masked(rows.random_mask_like, like, number("rate", rate, 0, below=1), seed, name)


def _masked(op: Op, x: Blob, rate: float, seed: Any, name: str | None) -> Blob:
    trace = require_trace(f"flow.{op.name}")
    name = trace.auto_name(op.label) if name is None else name
    start = stable_seed(trace.settings.random_seed, trace.full_name(name)) if seed is None else checked_seed(seed)
    return emit(op, x, name=name, rate=rate, seed=start, step=Blob(trace.step()))


def _check_noise_shape(noise_shape: Any, x: Any) -> None:
    if not isinstance(x, Blob):
        raise DTypeError(f"dropout takes a blob, got {type(x).__name__} {x!r}")
    if noise_shape is not None and tuple(noise_shape) != x.shape:
        raise UnsupportedError(
            f"noise_shape is that of the blob, {x.shape}: every element is dropped on its own; got {noise_shape!r}"
        )


def fused_scale_tril_softmax_dropout(
    x: Blob,
    diagonal: int = 0,
    fill_value: Number = 0,
    scale: Number = 1,
    rate: float = 0.0,
    noise_shape: Sequence[int] | None = None,
    seed: int | None = None,
    name: str | None = None,
) -> Blob:
    """dropout(softmax(fused_scale_tril(x))): attention weights that see no later position, for ``fill_value`` minus
    infinity."""
    return dropout(
        emit(activation.softmax, fused_scale_tril(x, diagonal, fill_value, scale), dim=-1),
        rate,
        noise_shape,
        seed,
        name,
    )
