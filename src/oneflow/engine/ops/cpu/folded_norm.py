"""The filters and bias of a convolution that normalises what it computes: batch norm with fixed statistics, folded into
it."""

from __future__ import annotations

from typing import Any

import torch


def folded_weight(
    weight: torch.Tensor, gamma: torch.Tensor | None, variance: torch.Tensor, epsilon: float
) -> torch.Tensor:
    """The filters of a convolution that normalises what it computes, in the layout of ``weight``."""
    scale = _scale(gamma, variance, epsilon).to(weight.dtype)
    return weight * scale.view(-1, *[1] * (weight.dim() - 1))


def folded_bias(
    bias: Any, gamma: Any, beta: Any, mean: torch.Tensor, variance: torch.Tensor, epsilon: float
) -> torch.Tensor:
    """Its bias: that of the normalisation, after the mean was taken from the convolution's own."""
    shift = (-mean if bias is None else bias - mean).double() * _scale(gamma, variance, epsilon)
    return (shift if beta is None else shift + beta).to(mean.dtype)


def _scale(gamma: torch.Tensor | None, variance: torch.Tensor, epsilon: float) -> torch.Tensor:
    """In double precision: a channel has one scale for all its values, so its error would not average out."""
    scale = (variance.double() + epsilon).rsqrt()
    return scale if gamma is None else scale * gamma
