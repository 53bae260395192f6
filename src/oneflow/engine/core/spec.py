"""What is known of a tensor before it has data: shape and dtype."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch

from oneflow.engine.core.dtype import DType, from_torch


@dataclass(frozen=True)
class TensorSpec:
    """Shape and dtype of a logical (whole) tensor."""

    shape: tuple[int, ...]
    dtype: DType

    @property
    def elements(self) -> int:
        return prod(self.shape)

    def meta(self) -> torch.Tensor:
        """A tensor of this spec without data, for shape inference."""
        return torch.empty(self.shape, dtype=self.dtype.torch, device="meta")

    def __str__(self) -> str:
        return f"{self.dtype.name}({', '.join(map(str, self.shape))})"


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    return TensorSpec(tuple(tensor.shape), from_torch(tensor.dtype))
