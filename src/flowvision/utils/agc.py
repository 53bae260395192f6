"""Adaptive gradient clipping: gradients in proportion to the weights they change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


def unitwise_norm(x: Tensor, norm_type: float = 2.0) -> Tensor:
    """The norm of each output unit; of a vector, of the whole."""
    return x.norm(norm_type) if x.ndim <= 1 else x.norm(norm_type, dim=tuple(range(1, x.ndim)), keepdim=True)


@torch.no_grad()
def adaptive_clip_grad(parameters: Any, clip_factor: float = 0.01, eps: float = 0.001, norm_type: float = 2.0) -> None:
    """Scales the gradient of each unit to at most ``clip_factor`` times the norm of its weights, which counts as at
    least ``eps``."""
    given: Iterable[Tensor] = [parameters] if isinstance(parameters, Tensor) else parameters
    for parameter in given:
        if parameter.grad is None:
            continue
        highest = unitwise_norm(parameter, norm_type).clamp(min=eps) * clip_factor
        norm = unitwise_norm(parameter.grad, norm_type)
        parameter.grad.copy_(
            torch.where(norm < highest, parameter.grad, parameter.grad * (highest / norm.clamp(min=1e-6)))
        )
