"""Checks of arguments that the ops of ``flow.data`` and ``flow.image`` share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oneflow.engine.core.dtype import as_dtype
from oneflow.engine.core.errors import ArgumentError, UnsupportedError
from oneflow.engine.core.spec import TensorSpec


def row_spec(what: str, shape: Sequence[int], dtype: Any) -> TensorSpec:
    """Shape without the batch, and dtype, of one record's part of a blob."""
    spec = TensorSpec(row_shape(what, shape), as_dtype(dtype))
    if spec.dtype.numpy is None:
        raise UnsupportedError(f"{what} cannot decode to {spec.dtype.name}; decode to float32 and cast")
    return spec


def row_shape(what: str, shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, (list, tuple)) or not all(type(n) is int and n > 0 for n in shape):
        raise ArgumentError(f"{what} takes a shape without the batch, a list or tuple of ints > 0 or (); got {shape!r}")
    return tuple(shape)


def positive(what: str, **sizes: Any) -> None:
    at_least(1, what, **sizes)


def at_least(least: int, what: str, **counts: Any) -> None:
    for name, value in counts.items():
        if type(value) is not int or value < least:
            raise ArgumentError(f"{what}: {name} is an int of at least {least}, got {value!r}")


def feature_name(what: str, key: Any) -> str:
    if not isinstance(key, str):
        raise ArgumentError(f"{what}: the name of a feature is a str, got {key!r}")
    return key
