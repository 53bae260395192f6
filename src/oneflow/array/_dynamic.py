"""Where elements are: results with as many rows as the data says, which a job can return and watch."""

from __future__ import annotations

from typing import Any

from oneflow.array._arguments import blob_of
from oneflow.engine.core import dtype as dtypes
from oneflow.engine.core.dtype import as_dtype
from oneflow.engine.ir.blob import Blob, emit, emit_many, with_count
from oneflow.engine.ops import dynamic as rows
from oneflow.engine.ops import index
from oneflow.engine.ops.array import reshape


def argwhere(condition: Blob, dtype: Any = None, name: str | None = None) -> Blob:
    """The places of the elements that are not 0, one row each, in ``dtype`` (int32 if none is given)."""
    places, count = _places(condition, dtype, name)
    return with_count(places, count)


def nonzero(a: Blob, name: str | None = None) -> tuple[Blob, ...]:
    """The places of the elements that are not 0: for each axis a vector of coordinates, int32."""
    places, count = _places(a, None, name)
    columns = [emit(index.slice_v2, places, bounds=((None, None, None), (i, i + 1, None))) for i in range(len(a.shape))]
    return tuple(with_count(emit(reshape, column, shape=(-1,)), count) for column in columns)


def _places(x: Blob, dtype: Any, name: str | None) -> tuple[Blob, Blob]:
    kind = dtypes.int32 if dtype is None else as_dtype(dtype)
    places, count = emit_many(rows.argwhere, blob_of("argwhere", x), dtype=kind.torch, name=name)
    return places, count
