"""``flow.cuda``: as in torch; without a GPU, what asks for one is an error that says so, and there is nothing to wait
for."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
from torch.cuda import (  # type: ignore[attr-defined]
    BoolTensor,
    ByteTensor,
    CharTensor,
    DoubleTensor,
    FloatTensor,
    HalfTensor,
    IntTensor,
    LongTensor,
    device_count,
    empty_cache,
    is_available,
    manual_seed,
    manual_seed_all,
)

from oneflow.engine.core.errors import NoDeviceError

__all__ = [
    "BoolTensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "current_device",
    "device_count",
    "empty_cache",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "is_available",
    "manual_seed",
    "manual_seed_all",
    "set_device",
    "synchronize",
]

_T = TypeVar("_T")


def _with_device(function: Callable[..., _T]) -> Callable[..., _T]:
    """``function`` of torch.cuda; an error that tells how to go on where there is no GPU."""

    @wraps(function)
    def asked(*args: Any, **kwargs: Any) -> _T:
        if not torch.cuda.is_available():
            raise NoDeviceError(
                f"flow.cuda.{function.__name__} needs a CUDA device and there is none; ask flow.cuda.is_available() "
                f"first, or use the CPU"
            )
        return function(*args, **kwargs)

    return asked


current_device = _with_device(torch.cuda.current_device)
get_device_capability = _with_device(torch.cuda.get_device_capability)
get_device_name = _with_device(torch.cuda.get_device_name)
get_device_properties = _with_device(torch.cuda.get_device_properties)
set_device = _with_device(torch.cuda.set_device)


def synchronize(device: Any = None) -> None:
    """Waits until a GPU has done all it was given; without one nothing is under way."""
    if torch.cuda.is_available():
        torch.cuda.synchronize(device)
