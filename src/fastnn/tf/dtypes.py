"""TensorFlow's dtypes: torch's, and ``string``, whose values are bytes."""

from __future__ import annotations

import builtins
from typing import Any

import torch

from oneflow.engine.core.errors import DTypeError

bool = torch.bool
uint8, int8, int16, int32, int64 = torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64
float16, bfloat16, float32, float64 = torch.float16, torch.bfloat16, torch.float32, torch.float64


class _String:
    def __repr__(self) -> builtins.str:
        return "tf.string"


string = _String()


def torch_dtype(dtype: Any) -> torch.dtype:
    """A dtype of numbers, given as TensorFlow's programs give it."""
    found = getattr(torch, dtype, None) if isinstance(dtype, builtins.str) else dtype
    if not isinstance(found, torch.dtype):
        raise DTypeError(f"a dtype of numbers is tf.float32, tf.int64 and so on; got {dtype!r}")
    return found
