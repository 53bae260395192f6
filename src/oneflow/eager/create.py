"""Functions that make tensors: torch's, with the keywords ``placement`` and ``sbp`` that ask for a global tensor."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from oneflow.core.errors import UnsupportedError


def local(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """``make``, which makes a local tensor. Asked for a global one, it says that there is none."""

    @wraps(make)
    def made(*args: Any, placement: Any = None, sbp: Any = None, **kwargs: Any) -> torch.Tensor:
        if placement is not None or sbp is not None:
            raise UnsupportedError(
                f"flow.{make.__name__} was given placement={placement!r} and sbp={sbp!r}: global tensors are not available; leave both out for a local tensor"
            )
        return make(*args, **kwargs)

    return made


arange = local(torch.arange)
empty = local(torch.empty)
empty_like = local(torch.empty_like)
eye = local(torch.eye)
full = local(torch.full)
full_like = local(torch.full_like)
hann_window = local(torch.hann_window)
linspace = local(torch.linspace)
logspace = local(torch.logspace)
normal = local(torch.normal)
ones = local(torch.ones)
ones_like = local(torch.ones_like)
rand = local(torch.rand)
randint = local(torch.randint)
randint_like = local(torch.randint_like)
randn = local(torch.randn)
randn_like = local(torch.randn_like)
randperm = local(torch.randperm)
tensor = local(torch.tensor)
zeros = local(torch.zeros)
zeros_like = local(torch.zeros_like)


@local
def new_empty(x: torch.Tensor, size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> torch.Tensor:
    """A tensor of ``size`` without content, in x's dtype and on its device unless others are given."""
    return x.new_empty(size, dtype=dtype, device=device, requires_grad=requires_grad)


@local
def new_full(x: torch.Tensor, size: Any, fill_value: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> torch.Tensor:
    """``fill_value`` in a tensor of ``size``, in x's dtype and on its device unless others are given."""
    return x.new_full(size, fill_value, dtype=dtype, device=device, requires_grad=requires_grad)


@local
def new_ones(x: torch.Tensor, size: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> torch.Tensor:
    """Ones of ``size``, x's own if not given, in x's dtype and on its device unless others are given."""
    return x.new_ones(x.shape if size is None else size, dtype=dtype, device=device, requires_grad=requires_grad)


@local
def new_zeros(x: torch.Tensor, size: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> torch.Tensor:
    """Zeros of ``size``, x's own if not given, in x's dtype and on its device unless others are given."""
    return x.new_zeros(x.shape if size is None else size, dtype=dtype, device=device, requires_grad=requires_grad)
