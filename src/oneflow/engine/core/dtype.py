"""The element types of blobs: one frozen value each, with its names, numpy and torch counterpart. What users pass and
see is torch's dtype."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from oneflow.engine.core.errors import UnsupportedError, nearest


@dataclass(frozen=True)
class DType:
    """An element type. ``checkpoint_name`` is how the ``meta`` files of checkpoints spell it."""

    name: str
    torch: torch.dtype
    numpy: np.dtype | None
    checkpoint_name: str

    def __repr__(self) -> str:
        return f"oneflow.{self.name}"

    def require_numpy(self) -> np.dtype:
        """The numpy counterpart, where it was made sure before that there is one."""
        assert self.numpy is not None, f"numpy has no {self.name}"
        return self.numpy

    @property
    def is_floating_point(self) -> bool:
        return self.torch.is_floating_point


float32 = DType("float32", torch.float32, np.dtype(np.float32), "kFloat")
float64 = DType("float64", torch.float64, np.dtype(np.float64), "kDouble")
float16 = DType("float16", torch.float16, np.dtype(np.float16), "kFloat16")
bfloat16 = DType("bfloat16", torch.bfloat16, None, "kBFloat16")
int8 = DType("int8", torch.int8, np.dtype(np.int8), "kInt8")
int32 = DType("int32", torch.int32, np.dtype(np.int32), "kInt32")
int64 = DType("int64", torch.int64, np.dtype(np.int64), "kInt64")
uint8 = DType("uint8", torch.uint8, np.dtype(np.uint8), "kUInt8")
char = DType("char", torch.int8, np.dtype(np.int8), "kChar")

ALL = (float32, float64, float16, bfloat16, int8, int32, int64, uint8, char)
_BY_TORCH = {d.torch: d for d in reversed(ALL)} | {torch.int8: int8}
_BY_NUMPY = {d.numpy: d for d in reversed(ALL) if d.numpy is not None} | {np.dtype(np.int8): int8}
_BY_NAME = {d.name: d for d in ALL}
_BY_NUMBER = {
    2: float32,
    3: float64,
    4: int8,
    5: int32,
    6: int64,
    7: uint8,
    9: float16,
    1: char,
}  # core/common/data_type_pb2.py


def from_torch(dtype: torch.dtype) -> DType:
    """The DType of a torch dtype."""
    try:
        return _BY_TORCH[dtype]
    except KeyError:
        raise UnsupportedError(f"blobs cannot have the torch dtype {dtype}; there are {list(_BY_NAME)}") from None


def dtype_like(dtype: torch.dtype) -> DType:
    """The DType of any torch dtype. Blobs do not have all of them, tensors do."""
    return _BY_TORCH.get(dtype) or DType(str(dtype).removeprefix("torch."), dtype, None, "")


def from_numpy(dtype: np.dtype) -> DType:
    """The DType of a numpy dtype."""
    try:
        return _BY_NUMPY[np.dtype(dtype)]
    except KeyError:
        raise UnsupportedError(f"blobs cannot have the numpy dtype {dtype}; there are {list(_BY_NAME)}") from None


def as_dtype(value: Any) -> DType:
    """A DType from what users write for one: a DType, its name, a numpy or a torch dtype, or its number in
    data_type_pb2."""
    if isinstance(value, DType):
        return value
    if isinstance(value, torch.dtype):
        return from_torch(value)
    if isinstance(value, str) and value in _BY_NAME:
        return _BY_NAME[value]
    if type(value) is int and value in _BY_NUMBER:
        return _BY_NUMBER[value]
    try:
        return from_numpy(np.dtype(value))
    except TypeError:
        raise UnsupportedError(
            f"{value!r} is not a dtype.{nearest(str(value), _BY_NAME)} There are {list(_BY_NAME)}"
        ) from None
