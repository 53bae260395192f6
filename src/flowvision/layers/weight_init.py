"""First values of weights."""

from __future__ import annotations

import math

import oneflow.nn as nn
from oneflow import Tensor
from oneflow.engine.core.errors import ArgumentError


def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0) -> Tensor:
    """Normal numbers, drawn again outside [a, b]."""
    return nn.init.trunc_normal_(tensor, mean, std, a, b)


def variance_scaling_(tensor: Tensor, scale: float = 1.0, mode: str = "fan_in", distribution: str = "normal") -> Tensor:
    """Numbers whose variance is ``scale`` over the fan: "normal", "truncated_normal" or "uniform"."""
    fan_out, fan_in = tensor.shape[0], math.prod(tensor.shape[1:])
    fan_out *= math.prod(tensor.shape[2:])
    fans = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}
    if mode not in fans:
        raise ArgumentError(f"mode is one of {', '.join(fans)}, got {mode!r}")
    variance = scale / fans[mode]
    if distribution == "truncated_normal":
        std = math.sqrt(variance) / 0.87962566103423978  # what the cut at two deviations takes away
        return nn.init.trunc_normal_(tensor, std=std, a=-2 * std, b=2 * std)
    if distribution == "normal":
        return nn.init.normal_(tensor, std=math.sqrt(variance))
    if distribution == "uniform":
        limit = math.sqrt(3 * variance)
        return nn.init.uniform_(tensor, -limit, limit)
    raise ArgumentError(f"distribution is normal, truncated_normal or uniform, got {distribution!r}")


def lecun_normal_(tensor: Tensor) -> Tensor:
    """Truncated normal numbers of variance 1 / fan_in."""
    return variance_scaling_(tensor, mode="fan_in", distribution="truncated_normal")
