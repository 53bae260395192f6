"""Blobs made from numbers."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

from oneflow.array._arguments import apply, blob_of, dtype_of, shape_of
from oneflow.compat.spellings import spelled
from oneflow.engine.core import dtype as dtypes
from oneflow.engine.core.dtype import DType, as_dtype
from oneflow.engine.core.errors import ArgumentError, UnsupportedError
from oneflow.engine.core.number import real
from oneflow.engine.ir.blob import Blob, emit
from oneflow.engine.ops import create as rows
from oneflow.engine.ops.reduce import reduced_shape_elem_cnt
from oneflow.nn._arguments import axis_in


def constant(value: float, dtype: Any = None, shape: Sequence[int] | None = None, name: str | None = None) -> Blob:
    """``value`` everywhere, in ``dtype``, which must be given; shape (1,) if none is given."""
    if isinstance(value, (list, tuple)):
        raise UnsupportedError(f"constant takes one Python number, got {value!r}; feed arrays as inputs of the job")
    if dtype is None:
        raise ArgumentError("constant needs a dtype, such as dtype=flow.float")
    return _filled(value, as_dtype(dtype), (1,) if shape is None else shape, name)


def _filled(value: float, dtype: DType, shape: Sequence[int], name: str | None) -> Blob:
    return apply(rows.constant, value=value, shape=shape_of("a constant's shape", shape), dtype=dtype.torch, name=name)


def constant_scalar(value: float, dtype: Any = None, name: str | None = None) -> Blob:
    """``value`` in a blob of shape (1,), in the job's default data type if no ``dtype`` is given."""
    return constant(value, dtype_of(dtype, "constant_scalar"), (1,), name)


def zeros(shape: Sequence[int], dtype: Any = None, name: str | None = None) -> Blob:
    """Zeros, in the job's default data type if no ``dtype`` is given."""
    return _filled(0, dtype_of(dtype, "zeros"), shape, name)


def ones(shape: Sequence[int], dtype: Any = None, name: str | None = None) -> Blob:
    """Ones, in the job's default data type if no ``dtype`` is given."""
    return _filled(1, dtype_of(dtype, "ones"), shape, name)


def constant_like(like: Blob, value: float, dtype: Any = None, name: str | None = None) -> Blob:
    """``value`` in the shape of ``like`` and in its dtype, unless another is given. No gradient reaches ``like``."""
    out = blob_of("constant_like", like).spec.dtype if dtype is None else as_dtype(dtype)
    return apply(rows.constant_like, like, value=value, dtype=out.torch, name=name)


def zeros_like(like: Blob, dtype: Any = None, name: str | None = None) -> Blob:
    """Zeros in the shape of ``like`` and in its dtype, unless another is given."""
    return constant_like(like, 0, dtype, name)


def ones_like(like: Blob, dtype: Any = None, name: str | None = None) -> Blob:
    """Ones in the shape of ``like`` and in its dtype, unless another is given."""
    return constant_like(like, 1, dtype, name)


def range(
    start: float, limit: float | None = None, delta: float = 1, dtype: Any = None, name: str | None = None
) -> Blob:
    """``start``, ``start + delta`` ... short of ``limit``; with one number from 0 up to it.

    Without ``dtype``: int64 for ints, the job's default data type for floats.
    """
    start, limit = (0, start) if limit is None else (start, limit)
    start, limit, delta = real("start", start), real("limit", limit), real("delta", delta)
    whole = all(isinstance(n, int) for n in (start, limit, delta))
    out = dtypes.int64 if dtype is None and whole else dtype_of(dtype, "range")
    return apply(rows.range_, start=start, limit=limit, delta=delta, dtype=out.torch, name=name)


@spelled("elem_cnt")
def elem_cnt(x: Blob, dtype: Any = None, name: str | None = None, axis: int | Sequence[int] | None = None) -> Blob:
    """How many elements x has in this step, on the named axes or on all: shape (1,), int32 if no ``dtype`` is given."""
    rank = len(blob_of("elem_cnt", x).shape)
    axes = tuple(builtins.range(rank)) if axis is None else tuple(axis) if isinstance(axis, (list, tuple)) else (axis,)
    dims = [axis_in("elem_cnt's axis", i, rank) for i in axes]
    kind = dtypes.int32 if dtype is None else as_dtype(dtype)
    return emit(reduced_shape_elem_cnt, x, axis=dims, dtype=kind.torch, name=name)
