"""First values of the weights of transformers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from oneflow import nn


def init_method_normal(sigma: float, mean: float = 0.0) -> Callable[[Any], Any]:
    """Normal with this standard deviation."""
    return lambda tensor: nn.init.normal_(tensor, mean=mean, std=sigma)


def scaled_init_method_normal(sigma: float, num_layers: int, mean: float = 0.0) -> Callable[[Any], Any]:
    """Normal with ``sigma`` / sqrt(2 * ``num_layers``): of the layers whose results are added up, two in each of the
    model's layers."""
    return init_method_normal(sigma / math.sqrt(2.0 * num_layers), mean)
