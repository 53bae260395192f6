"""Ops and functions of ``flow.experimental``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from oneflow.array import assign, slice_update, slice_v2
from oneflow.checkpoint import get_all_variables, load_variables
from oneflow.engine.core import dtype as dtypes
from oneflow.engine.core.dtype import as_dtype
from oneflow.engine.core.errors import ArgumentError, nearest
from oneflow.engine.core.number import flag
from oneflow.engine.ir.blob import Blob, emit_many, with_count
from oneflow.engine.job.function import default_session
from oneflow.engine.ops import dynamic as rows
from oneflow.math import reduce_sum, square


def square_sum(x: Blob, name: str | None = None) -> Blob:
    """The sum of the squares of all elements, shape (1,)."""
    return reduce_sum(square(x), name=name)


def unique_with_counts(x: Blob, out_idx: Any = dtypes.int32, name: str | None = None) -> tuple[Blob, Blob, Blob, Blob]:
    """The values of a blob of rank 1 in order of appearance, the place of each element among them, how often each value
    comes, and how many values there are. The first and the third have as many rows as that; they can be returned and
    watched."""
    values, places, counts, number = emit_many(rows.unique_with_counts, x, dtype=as_dtype(out_idx).torch, name=name)
    return with_count(values, number), places, with_count(counts, number), number


def indexed_slices_reduce_sum(indices: Blob, values: Blob, name: str | None = None) -> tuple[Blob, Blob, Blob]:
    """The different indices in order of appearance, for each the sum of its rows of ``values``, and how many there are.
    The first two have as many rows as that; they can be returned and watched."""
    unique, sums, number = emit_many(rows.indexed_slices_reduce_sum, indices, values, name=name)
    return with_count(unique, number), with_count(sums, number), number


def logical_slice(x: Blob, slice_tup_list: Sequence[Sequence[int | None]], name: str | None = None) -> Blob:
    """``flow.slice_v2`` of the whole blob, however it lies over devices."""
    return slice_v2(x, slice_tup_list, name=name)


def logical_slice_assign(
    x: Blob, value: Blob, slice_tup_list: Sequence[Sequence[int | None]], name: str | None = None
) -> None:
    """Writes ``value`` into the named slices of the variable ``x``, at the end of the step."""
    assign(x, slice_update(x, value, slice_tup_list), name=name)


def get_interface_blob_value(op_name: str) -> np.ndarray:
    """The present values of the variable ``op_name``. Not for use inside a job."""
    return _variable("get_interface_blob_value", op_name).numpy()


def set_interface_blob_value(op_name: str, ndarray: np.ndarray) -> None:
    """Writes values into the variable ``op_name``. Not for use inside a job."""
    _variable("set_interface_blob_value", op_name)
    load_variables({op_name: np.asarray(ndarray)}, ignore_mismatch=False)


def _variable(what: str, name: str) -> Any:
    variables = get_all_variables()
    if name not in variables:
        raise ArgumentError(f"flow.experimental.{what}: no job has a variable {name!r}.{nearest(name, variables)}")
    return variables[name]


def enable_typing_check(val: bool = True) -> None:
    """Does nothing: annotations are always checked."""
    flag("enable_typing_check", val)


def get_job_set() -> list[str]:
    """The names of the jobs that are defined."""
    return list(default_session().jobs)
