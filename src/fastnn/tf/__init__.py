"""The words of TensorFlow that a FastNN data set file uses, without TensorFlow.

Numbers are torch tensors, strings are bytes, and everything happens at once. In data set files ``import tensorflow as
tf`` finds this module where TensorFlow is not installed (``fastnn.tf.stand_in``). Any other name of TensorFlow's is an
error that names it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn

import torch
from torch import Tensor

from fastnn.tf import image, io, losses
from fastnn.tf.absent import absent
from fastnn.tf.dtypes import (
    bfloat16,
    bool,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
    torch_dtype,
    uint8,
)
from fastnn.tf.example import (
    FixedLenFeature,
    SparseTensor,
    VarLenFeature,
    decode_raw,
    parse_single_example,
    sparse_tensor_to_dense,
)

__all__ = [
    "FixedLenFeature",
    "SparseTensor",
    "VarLenFeature",
    "bfloat16",
    "bool",
    "cast",
    "constant",
    "decode_raw",
    "device",
    "float16",
    "float32",
    "float64",
    "image",
    "int16",
    "int32",
    "int64",
    "int8",
    "io",
    "losses",
    "ones",
    "parse_single_example",
    "reshape",
    "shape",
    "sparse_tensor_to_dense",
    "squeeze",
    "string",
    "to_float",
    "to_int32",
    "to_int64",
    "transpose",
    "uint8",
    "zeros",
]


def device(name: str) -> AbstractContextManager[None]:
    """Data is prepared on the CPU whatever ``name`` says."""
    return nullcontext()


def cast(x: Any, dtype: Any, name: str | None = None) -> Tensor:
    """``x`` in another dtype; fractions are cut off."""
    return torch.as_tensor(x).to(torch_dtype(dtype))


def to_float(x: Any, name: str | None = None) -> Tensor:
    """``cast(x, float32)``"""
    return cast(x, float32)


def to_int32(x: Any, name: str | None = None) -> Tensor:
    """``cast(x, int32)``"""
    return cast(x, int32)


def to_int64(x: Any, name: str | None = None) -> Tensor:
    """``cast(x, int64)``"""
    return cast(x, int64)


def reshape(tensor: Any, shape: Any, name: str | None = None) -> Tensor:
    """``tensor`` in another shape, of which one size may be -1."""
    return torch.as_tensor(tensor).reshape([int(size) for size in shape])


def squeeze(input: Any, axis: Any = None, name: str | None = None) -> Tensor:
    """``input`` without dims of size 1."""
    tensor = torch.as_tensor(input)
    return tensor.squeeze() if axis is None else tensor.squeeze(axis)


def transpose(a: Any, perm: Any = None, name: str | None = None) -> Tensor:
    """``a`` with its dims in another order, by default the reverse."""
    tensor = torch.as_tensor(a)
    return tensor.permute(*(reversed(range(tensor.ndim)) if perm is None else perm))


def shape(input: Any, name: str | None = None) -> Tensor:
    """The sizes of ``input``, as int32."""
    return torch.tensor(torch.as_tensor(input).shape, dtype=torch.int32)


def zeros(shape: Any, dtype: Any = float32, name: str | None = None) -> Any:
    """Zeros; of strings, the empty string."""
    return (
        b""
        if dtype is string and len(shape) == 0
        else torch.zeros([int(size) for size in shape], dtype=torch_dtype(dtype))
    )


def ones(shape: Any, dtype: Any = float32, name: str | None = None) -> Tensor:
    """Ones."""
    return torch.ones([int(size) for size in shape], dtype=torch_dtype(dtype))


def constant(value: Any, dtype: Any = None, shape: Any = None, name: str | None = None) -> Tensor:
    """``value`` as a tensor."""
    tensor = torch.tensor(value, dtype=None if dtype is None else torch_dtype(dtype))
    return tensor if shape is None else tensor.expand([int(size) for size in shape]).clone()


def __getattr__(name: str) -> NoReturn:
    if name.startswith("__"):
        raise AttributeError(name)
    raise absent(f"tf.{name}", __all__)
