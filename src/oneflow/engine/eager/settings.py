"""Switches, dtypes and marks of functions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import torch

from oneflow.engine.core.dtype import as_dtype
from oneflow.engine.core.errors import ArgumentError, UnsupportedError

oneflow_python_base_dir = str(Path(__file__).parents[3])


class set_grad_enabled(torch.set_grad_enabled):
    """Gradients on or off, at once, or for a ``with`` block or a decorated function."""

    def __init__(self, is_train: bool = True) -> None:
        super().__init__(is_train)


def set_rng_state(state: torch.Tensor) -> None:
    """Sets the state of the default generator to what ``get_rng_state`` gave."""
    torch.set_rng_state(state)


def set_default_tensor_type(tensor_type: Any) -> None:
    """Makes the dtype of a floating point tensor type, or of its name such as "oneflow.DoubleTensor", the default
    dtype."""
    name = tensor_type if isinstance(tensor_type, str) else f"torch.{tensor_type.__name__}"
    short = name.rsplit(".", 1)[-1]
    if short not in _FLOAT_TENSORS or ".cuda." in name:
        raise ArgumentError(
            f"set_default_tensor_type takes one of {list(_FLOAT_TENSORS)} on the CPU, got {tensor_type!r}"
        )
    torch.set_default_dtype(_FLOAT_TENSORS[short])


_FLOAT_TENSORS = {
    "FloatTensor": torch.float32,
    "DoubleTensor": torch.float64,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
}


def get_autocast_cpu_dtype() -> torch.dtype:
    """What ``autocast("cpu")`` computes in."""
    return torch.get_autocast_dtype("cpu")


def get_autocast_gpu_dtype() -> torch.dtype:
    """What ``autocast("cuda")`` computes in."""
    return torch.get_autocast_dtype("cuda")


def set_autocast_cpu_dtype(dtype: torch.dtype) -> None:
    """Sets what ``autocast("cpu")`` computes in."""
    torch.set_autocast_dtype("cpu", dtype)


def set_autocast_gpu_dtype(dtype: torch.dtype) -> None:
    """Sets what ``autocast("cuda")`` computes in."""
    torch.set_autocast_dtype("cuda", dtype)


def dtypes() -> list[torch.dtype]:
    """Every dtype that a tensor can have."""
    return [
        torch.bool,
        torch.float32,
        torch.float64,
        torch.int8,
        torch.int32,
        torch.int64,
        torch.uint8,
        torch.float16,
        torch.bfloat16,
    ]


def convert_oneflow_dtype_to_numpy_dtype(oneflow_dtype: torch.dtype) -> type[np.generic]:
    """The type that numpy has for a dtype."""
    if oneflow_dtype is torch.bool:
        return np.bool_
    found = as_dtype(oneflow_dtype).numpy
    if found is None:
        raise UnsupportedError(f"numpy has no {oneflow_dtype}; cast the tensor to float32 first")
    return found.type


def oneflow_deprecate(*api_names: str, **kwargs: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the function warns, at its first call from each line, that it is deprecated."""

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def warned(*args: Any, **named: Any) -> Any:
            warnings.warn(
                f"{', '.join(api_names) or function.__name__} is deprecated", DeprecationWarning, stacklevel=2
            )
            return function(*args, **named)

        vars(warned)["is_deprecated"] = True
        return warned

    return mark


def is_deprecated(func_or_class: Any) -> bool:
    """Whether ``oneflow_deprecate`` has marked a function."""
    return getattr(func_or_class, "is_deprecated", False) is True


def script(obj: Any, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None) -> Any:
    """``obj`` itself: it runs as it is. What compiles is ``nn.Graph``."""
    return obj


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """A decorator that leaves a function as it is, as nothing is scripted."""
    return drop if callable(drop) else lambda function: function
