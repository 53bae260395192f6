"""The loss of predicted tokens."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F

from libai.layers.laying import at_layer, laid
from oneflow import nn
from oneflow.engine.core.errors import ArgumentError


class ParallelCrossEntropyLoss(nn.Module):
    """The cross entropy of each token, a vector of batch * length: logits (batch, length, vocabulary), whose vocabulary
    may be cut, and targets (batch, length).

    Targets below 0 count as 0: who calls it masks them. It lies on the last stage.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layer_idx = -1

    def forward(self, logits: Any, target: Any) -> Any:
        if logits.ndim != 3 or tuple(target.shape) != tuple(logits.shape[:2]):
            raise ArgumentError(
                f"ParallelCrossEntropyLoss takes logits of (batch, length, vocabulary) and targets of (batch, length), "
                f"got {tuple(logits.shape)} and {tuple(target.shape)}"
            )
        answers = laid(at_layer(target, self.layer_idx)).clamp(min=0).long().flatten()
        return F.cross_entropy(logits.flatten(0, 1), answers, reduction="none")
