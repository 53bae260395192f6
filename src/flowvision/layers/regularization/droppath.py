"""Drop-path, as transformers call stochastic depth per picture."""

from __future__ import annotations

import oneflow.nn as nn
from flowvision.layers.regularization.stochastic_depth import stochastic_depth
from oneflow import Tensor


def drop_path(x: Tensor, drop_prob: float = 0.5, training: bool = False) -> Tensor:
    """Zeroes whole rows of ``x`` with probability ``drop_prob`` and divides the others by what is kept."""
    return stochastic_depth(x, drop_prob, "row", training)


class DropPath(nn.Module):
    """:func:`drop_path` while it trains."""

    def __init__(self, drop_prob: float | None = None) -> None:
        super().__init__()
        self.drop_prob = drop_prob or 0.0

    def forward(self, x: Tensor) -> Tensor:
        return drop_path(x, self.drop_prob, self.training)

    def extra_repr(self) -> str:
        return f"drop_prob={self.drop_prob}"
