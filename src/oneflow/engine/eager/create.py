"""Functions that make tensors: torch's, with the keywords ``placement`` and ``sbp`` that ask for a global tensor."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch


def local_or_global(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """``make``, which makes a local tensor; with ``placement=`` and ``sbp=`` the function of global tensors of its
    name."""

    @wraps(make)
    def made(*args: Any, placement: Any = None, sbp: Any = None, **kwargs: Any) -> torch.Tensor:
        if placement is None and sbp is None:
            return make(*args, **kwargs)
        from oneflow.engine.global_tensor.factories import make as make_global  # with it come the rules of every op

        return make_global(make.__name__, args, kwargs, placement, sbp)

    made.__module__, made.__qualname__ = __name__, make.__name__
    return made


def _torchs(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    made = local_or_global(make)
    made.__doc__ = f"``torch.{make.__name__}`` ; with placement= and sbp= a global tensor."
    return made


def _tensor(data: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
    """``torch.tensor``, which copies; of a tensor as well, and without the warning that says so. With placement= and
    sbp= a global tensor."""
    if type(data) is not torch.Tensor or args or kwargs.keys() - {"dtype", "device", "requires_grad"}:
        return torch.tensor(data, *args, **kwargs)
    copied = data.detach().to(device=kwargs.get("device"), dtype=kwargs.get("dtype"), copy=True)
    return copied.requires_grad_() if kwargs.get("requires_grad") else copied


_tensor.__name__ = "tensor"


arange = _torchs(torch.arange)
empty = _torchs(torch.empty)
empty_like = _torchs(torch.empty_like)
eye = _torchs(torch.eye)
full = _torchs(torch.full)
full_like = _torchs(torch.full_like)
hann_window = _torchs(torch.hann_window)
linspace = _torchs(torch.linspace)
logspace = _torchs(torch.logspace)
normal = _torchs(torch.normal)
ones = _torchs(torch.ones)
ones_like = _torchs(torch.ones_like)
rand = _torchs(torch.rand)
randint = _torchs(torch.randint)
randint_like = _torchs(torch.randint_like)
randn = _torchs(torch.randn)
randn_like = _torchs(torch.randn_like)
randperm = _torchs(torch.randperm)
tensor = local_or_global(_tensor)
zeros = _torchs(torch.zeros)
zeros_like = _torchs(torch.zeros_like)


@local_or_global
def new_empty(
    x: torch.Tensor, size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> torch.Tensor:
    """A tensor of ``size`` without content, in x's dtype and on its device unless others are given."""
    return x.new_empty(size, dtype=dtype, device=device, requires_grad=requires_grad)


@local_or_global
def new_full(
    x: torch.Tensor, size: Any, fill_value: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> torch.Tensor:
    """``fill_value`` in a tensor of ``size``, in x's dtype and on its device unless others are given."""
    return x.new_full(size, fill_value, dtype=dtype, device=device, requires_grad=requires_grad)


@local_or_global
def new_ones(
    x: torch.Tensor, size: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> torch.Tensor:
    """Ones of ``size``, x's own if not given, in x's dtype and on its device unless others are given."""
    return x.new_ones(x.shape if size is None else size, dtype=dtype, device=device, requires_grad=requires_grad)


@local_or_global
def new_zeros(
    x: torch.Tensor, size: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> torch.Tensor:
    """Zeros of ``size``, x's own if not given, in x's dtype and on its device unless others are given."""
    return x.new_zeros(x.shape if size is None else size, dtype=dtype, device=device, requires_grad=requires_grad)
