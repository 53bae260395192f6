"""Attributes of OneFlow's tensors that ``import oneflow`` adds to ``torch.Tensor``. torch's own stay as they are."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn import init

from oneflow.engine.core.errors import ArgumentError, LocalTensorError
from oneflow.engine.core.switches import TORCH_METHODS, is_on
from oneflow.engine.eager import index, shape, vision
from oneflow.engine.global_tensor.building import current_building
from oneflow.engine.global_tensor.methods import install
from oneflow.engine.global_tensor.placement import placement
from oneflow.engine.global_tensor.sbp import sbp

_LAYOUTS = ("NCHW", "NHWC")


def _method(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A function of torch.nn.functional as a method; those that are built in do not bind by themselves."""

    def method(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return function(self, *args, **kwargs)

    method.__name__, method.__doc__ = function.__name__, f"torch.nn.functional.{function.__name__}, as a method."
    return method


def contiguous_(self: torch.Tensor) -> torch.Tensor:
    """Puts the tensor into row-major memory, in place."""
    self.data = self.data.contiguous()
    return self


def to_numpy(self: torch.Tensor) -> np.ndarray:
    """The values as an array; on the CPU it shares their memory."""
    return self.detach().cpu().numpy()


def kaiming_normal_(
    self: torch.Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    *,
    data_format: str = "NCHW",
) -> torch.Tensor:
    """Fills with N(0, gain^2 / fan); the channels stand last in "NHWC"."""
    return _filled(self, data_format, init.kaiming_normal_, a, mode, nonlinearity)


def kaiming_uniform_(
    self: torch.Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    *,
    data_format: str = "NCHW",
) -> torch.Tensor:
    """Fills uniformly within gain * sqrt(3 / fan); the channels stand last in "NHWC"."""
    return _filled(self, data_format, init.kaiming_uniform_, a, mode, nonlinearity)


def _filled(weight: torch.Tensor, data_format: str, fill: Callable[..., torch.Tensor], *args: Any) -> torch.Tensor:
    """``weight``, with what ``fill`` writes into a blank of the same shape, channels second. torch checks ``args``."""
    _filters(weight, data_format).copy_(fill(_blank(weight, data_format), *args))
    return weight


def _filters(weight: torch.Tensor, data_format: str) -> torch.Tensor:
    """A weight seen with its channels second, the order that fans are counted in."""
    return weight.detach() if data_format == "NCHW" or weight.dim() < 3 else weight.detach().movedim(-1, 1)


def _blank(weight: torch.Tensor, data_format: str) -> torch.Tensor:
    if data_format not in _LAYOUTS:
        raise ArgumentError(f"data_format is one of {list(_LAYOUTS)}, got {data_format!r}")
    return torch.empty_like(_filters(weight, data_format), memory_format=torch.contiguous_format)


def orthogonal_(self: torch.Tensor, gain: float = 1.0) -> torch.Tensor:
    """Fills with a matrix of orthogonal rows or columns, times ``gain``."""
    return init.orthogonal_(self, gain)


def trunc_normal_(
    self: torch.Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0
) -> torch.Tensor:
    """Fills from a normal distribution within [a, b]."""
    return init.trunc_normal_(self, mean, std, a, b)


def xavier_normal_(self: torch.Tensor, gain: float = 1.0) -> torch.Tensor:
    """Fills with N(0, gain^2 * 2 / (fan_in + fan_out))."""
    return init.xavier_normal_(self, gain)


def xavier_uniform_(self: torch.Tensor, gain: float = 1.0) -> torch.Tensor:
    """Fills uniformly within gain * sqrt(6 / (fan_in + fan_out))."""
    return init.xavier_uniform_(self, gain)


def _is_global(self: torch.Tensor) -> bool:
    """Whether the tensor lies over several ranks."""
    return current_building() is not None


def _is_local(self: torch.Tensor) -> bool:
    """Whether the tensor is this process's own."""
    return current_building() is None


def _is_lazy(self: torch.Tensor) -> bool:
    """Whether the tensor has no values because a graph is being built."""
    tracing = sys.modules.get(
        "torch.fx.experimental.proxy_tensor"
    )  # not loaded by torch itself: then nothing is traced
    return tracing is not None and tracing.get_proxy_mode() is not None


def _is_eager(self: torch.Tensor) -> bool:
    """Whether the tensor has values now."""
    return not _is_lazy(self)


def _placement(self: torch.Tensor) -> placement:
    """Where a global tensor lies; a local tensor has a device instead."""
    graph = current_building()
    if graph is not None:
        return graph.place(self)
    raise LocalTensorError(
        f"a local tensor {tuple(self.shape)} has no placement, it lies on {self.device}; read its .device"
    )


def _sbp(self: torch.Tensor) -> tuple[sbp, ...]:
    """How a global tensor lies over the ranks of its placement."""
    graph = current_building()
    if graph is not None:
        return graph.sbp(self)
    raise LocalTensorError(f"a local tensor {tuple(self.shape)} has no sbp, it lies whole on {self.device}")


METHODS: dict[str, Any] = {
    "cast": shape.cast,
    "contiguous_": contiguous_,
    "gelu": _method(F.gelu),
    "in_top_k": index.in_top_k,
    "kaiming_normal_": kaiming_normal_,
    "kaiming_uniform_": kaiming_uniform_,
    "mish": _method(F.mish),
    "nms": vision.nms,
    "orthogonal_": orthogonal_,
    "selu": _method(F.selu),
    "silu": _method(F.silu),
    "softplus": _method(F.softplus),
    "softsign": _method(F.softsign),
    "to_numpy": to_numpy,
    "trunc_normal_": trunc_normal_,
    "xavier_normal_": xavier_normal_,
    "xavier_uniform_": xavier_uniform_,
}
PROPERTIES = {
    "is_eager": _is_eager,
    "is_global": _is_global,
    "is_lazy": _is_lazy,
    "is_local": _is_local,
    "placement": _placement,
    "sbp": _sbp,
}


def add_methods() -> None:
    """Adds methods and properties to ``torch.Tensor`` and ``torch.nn.Module``, unless ONEFLOW_TORCH_METHODS is off.

    Names that torch has are left alone.
    """
    if not is_on(TORCH_METHODS):
        return
    install()
    for name, function in METHODS.items():
        if not hasattr(torch.Tensor, name):
            setattr(torch.Tensor, name, function)
    for name, getter in PROPERTIES.items():
        if not hasattr(torch.Tensor, name):
            setattr(torch.Tensor, name, property(getter))
