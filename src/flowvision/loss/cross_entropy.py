"""Cross entropy with labels that are not one class alone."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from oneflow.engine.core.errors import ArgumentError


class LabelSmoothingCrossEntropy(nn.Module):
    """The mean over the batch of -(1 - s) * log p(label) - s * mean over classes of log p, s being ``smoothing``."""

    def __init__(self, smoothing: float = 0.1) -> None:
        super().__init__()
        if not 0 <= smoothing < 1:
            raise ArgumentError(f"smoothing is from 0 to below 1, got {smoothing!r}")
        self.smoothing = smoothing

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        logs = torch.log_softmax(x, dim=-1)
        own = -logs.gather(-1, target.long().unsqueeze(1)).squeeze(1)
        return ((1.0 - self.smoothing) * own - self.smoothing * logs.mean(dim=-1)).mean()


class SoftTargetCrossEntropy(nn.Module):
    """The mean over the batch of -sum of target * log p, for labels that are a probability for each class."""

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        if x.shape != target.shape:
            raise ArgumentError(
                f"soft labels have a number for each class: scores are {tuple(x.shape)}, labels {tuple(target.shape)}"
            )
        return -(target * torch.log_softmax(x, dim=-1)).sum(dim=-1).mean()
