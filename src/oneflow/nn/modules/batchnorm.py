"""``flow.nn.modules.batchnorm``: batch normalisation, also with an addition and a ReLU behind it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import BatchNorm1d, BatchNorm2d, BatchNorm3d, SyncBatchNorm

from oneflow.engine.core.errors import ArgumentError

__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "FusedBatchNorm1d",
    "FusedBatchNorm2d",
    "FusedBatchNorm3d",
    "SyncBatchNorm",
]


def _activated(normalised: Tensor, addend: Tensor | None) -> Tensor:
    if addend is None:
        return torch.relu(normalised)
    if addend.shape != normalised.shape:
        raise ArgumentError(
            f"a fused batch norm takes an addend of the shape of its input, got {tuple(addend.shape)} for "
            f"{tuple(normalised.shape)}"
        )
    return torch.relu(normalised + addend)


class FusedBatchNorm1d(BatchNorm1d):
    """relu(batch_norm(x) + addend) of (N, C) or (N, C, W)."""

    def forward(self, x: Tensor, addend: Tensor | None = None) -> Tensor:
        return _activated(super().forward(x), addend)


class FusedBatchNorm2d(BatchNorm2d):
    """relu(batch_norm(x) + addend) of (N, C, H, W)."""

    def forward(self, x: Tensor, addend: Tensor | None = None) -> Tensor:
        return _activated(super().forward(x), addend)


class FusedBatchNorm3d(BatchNorm3d):
    """relu(batch_norm(x) + addend) of (N, C, D, H, W)."""

    def forward(self, x: Tensor, addend: Tensor | None = None) -> Tensor:
        return _activated(super().forward(x), addend)
