"""``flow.experimental``: names of jobs on their way, and, as in the releases of 2021, every name of the later API of
modules and tensors."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import oneflow
from oneflow.compat.absent import absent
from oneflow.compat.refused import REFUSED_EXPERIMENTAL
from oneflow.experimental import scope
from oneflow.experimental.early_tensor import Tensor
from oneflow.experimental.ops import (
    enable_typing_check,
    get_interface_blob_value,
    get_job_set,
    indexed_slices_reduce_sum,
    logical_slice,
    logical_slice_assign,
    set_interface_blob_value,
    square_sum,
    unique_with_counts,
)  # fmt: skip
from oneflow.scope import namespace as name_scope

__all__ = [
    "Tensor", "enable_typing_check", "get_interface_blob_value", "get_job_set", "indexed_slices_reduce_sum", "logical_slice", "logical_slice_assign",
    "name_scope", "scope", "set_interface_blob_value", "square_sum", "unique_with_counts",
]  # fmt: skip

for _name in ("nn", "optim", "utils"):
    sys.modules[f"{__name__}.{_name}"] = getattr(oneflow, _name)

_LATE = ("unittest", "util")  # modules that the root loads when they are asked for
_absent = absent(__name__, REFUSED_EXPERIMENTAL, lambda: {**vars(oneflow), **globals()})


def __getattr__(name: str) -> Any:
    """A name of the later API under its first path."""
    if name in _LATE:
        return import_module(f"oneflow.{name}")
    return _absent(name) if name in REFUSED_EXPERIMENTAL or name not in vars(oneflow) else getattr(oneflow, name)
