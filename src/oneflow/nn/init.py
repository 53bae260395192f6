"""``flow.nn.init``: first values, written into tensors. Torch's own, and those that also know weights with their
channels last."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import init
from torch.nn.init import calculate_gain, constant_, eye_, normal_, ones_, orthogonal_, trunc_normal_, uniform_, zeros_

from oneflow.engine.core.errors import ArgumentError
from oneflow.initializer import MODES, fan

__all__ = [
    "Tensor",
    "calc_fan",
    "calculate_gain",
    "constant_",
    "eye_",
    "get_data_format",
    "kaiming_normal_",
    "kaiming_uniform_",
    "normal_",
    "ones_",
    "orthogonal_",
    "trunc_normal_",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
]


def get_data_format(data_format: str) -> str:
    """ "channels_first" for "NC...", "channels_last" for "N...C"; these two, and "" for weights of rank 2, stay as they
    are."""
    if data_format in ("channels_first", "channels_last", ""):
        return data_format
    if isinstance(data_format, str) and data_format.startswith("NC"):
        return "channels_first"
    if isinstance(data_format, str) and data_format.startswith("N") and data_format.endswith("C"):
        return "channels_last"
    raise ArgumentError(f"data_format begins with 'NC' or has the form 'N...C', got {data_format!r}")


def calc_fan(shape: Sequence[int], mode: str, data_format: str) -> float:
    """The inputs ("fan_in") or outputs ("fan_out") of one unit of a weight of ``shape``, or their mean ("fan_avg").

    A weight is (out, in, ...) where channels come first and (out, ..., in) where they come last.
    """
    if mode not in MODES:
        raise ArgumentError(f"mode is one of {', '.join(map(repr, MODES))}; got {mode!r}")
    return fan(shape, mode, get_data_format(data_format))


def xavier_uniform_(
    tensor: Tensor, gain: float = 1.0, generator: torch.Generator | None = None, *, data_format: str = "NCHW"
) -> Tensor:
    """Uniform with the variance gain² / (mean of fan-in and fan-out)."""
    return _uniform(tensor, gain / math.sqrt(calc_fan(tensor.shape, "fan_avg", data_format)), generator)


def xavier_normal_(
    tensor: Tensor, gain: float = 1.0, generator: torch.Generator | None = None, *, data_format: str = "NCHW"
) -> Tensor:
    """Normal with the variance gain² / (mean of fan-in and fan-out)."""
    return init.normal_(tensor, 0.0, gain / math.sqrt(calc_fan(tensor.shape, "fan_avg", data_format)), generator)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: torch.Generator | None = None,
    *,
    data_format: str = "NCHW",
) -> Tensor:
    """Uniform with the variance gain² / fan; the gain is that of ``nonlinearity``, for "leaky_relu" with the slope
    ``a``."""
    return (
        tensor
        if 0 in tensor.shape
        else _uniform(tensor, _kaiming(tensor, a, mode, nonlinearity, data_format), generator)
    )


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: torch.Generator | None = None,
    *,
    data_format: str = "NCHW",
) -> Tensor:
    """Normal with the variance gain² / fan; the gain is that of ``nonlinearity``, for "leaky_relu" with the slope
    ``a``."""
    return (
        tensor
        if 0 in tensor.shape
        else init.normal_(tensor, 0.0, _kaiming(tensor, a, mode, nonlinearity, data_format), generator)
    )


_gain_of: Callable[..., float] = calculate_gain  # any string: torch says which it knows


def _kaiming(tensor: Tensor, a: float, mode: str, nonlinearity: str, data_format: str) -> float:
    return _gain_of(nonlinearity, a) / math.sqrt(calc_fan(tensor.shape, mode, data_format))


def _uniform(tensor: Tensor, stddev: float, generator: torch.Generator | None) -> Tensor:
    bound = math.sqrt(3.0) * stddev
    return init.uniform_(tensor, -bound, bound, generator)
