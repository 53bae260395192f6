"""Clipping of gradients, by the name of the way."""

from __future__ import annotations

from typing import Any

import torch

from flowvision.utils.agc import adaptive_clip_grad
from oneflow.engine.core.errors import ArgumentError


def dispatch_clip_grad(parameters: Any, value: float, mode: str = "norm", norm_type: float = 2.0) -> None:
    """Clips gradients by their common norm ("norm"), each number ("value"), or in proportion to the weights ("agc")."""
    if mode == "norm":
        torch.nn.utils.clip_grad_norm_(parameters, value, norm_type=norm_type)
    elif mode == "value":
        torch.nn.utils.clip_grad_value_(parameters, value)
    elif mode == "agc":
        adaptive_clip_grad(parameters, value, norm_type=norm_type)
    else:
        raise ArgumentError(f"mode is 'norm', 'value' or 'agc', got {mode!r}")
