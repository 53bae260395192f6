"""How slim's variables begin: each initializer fills a tensor in torch's layout, with the fans that TensorFlow counts
in its own."""

from __future__ import annotations

import math
from collections.abc import Callable

from oneflow import Tensor
from oneflow.nn import init

Fans = tuple[int, int]  # fan_in, fan_out
Initializer = Callable[[Tensor, Fans], Tensor]


def constant(value: float) -> Initializer:
    return lambda tensor, _: init.constant_(tensor, value)


def truncated_normal(stddev: float) -> Initializer:
    """Normal numbers, drawn again outside two standard deviations."""
    return lambda tensor, _: init.trunc_normal_(tensor, std=stddev, a=-2 * stddev, b=2 * stddev)


def xavier() -> Initializer:
    """Uniform within sqrt(6 / (fan_in + fan_out)): slim's own choice."""

    def fill(tensor: Tensor, fans: Fans) -> Tensor:
        limit = math.sqrt(6 / sum(fans))
        return init.uniform_(tensor, -limit, limit)

    return fill


def he(by_fan_out: bool = False) -> Initializer:
    """Truncated normal numbers whose variance is about 2 / fan: the factor 1.3 makes up for what the truncation
    takes."""

    def fill(tensor: Tensor, fans: Fans) -> Tensor:
        return truncated_normal(math.sqrt(1.3 * 2 / fans[by_fan_out]))(tensor, fans)

    return fill
