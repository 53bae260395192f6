"""Focal loss."""

from __future__ import annotations

import oneflow.nn.functional as F
from flowvision.layers.blocks.reduction import reduced
from oneflow import Tensor


def sigmoid_focal_loss(
    inputs: Tensor, targets: Tensor, alpha: float = 0.25, gamma: float = 2, reduction: str = "none"
) -> Tensor:
    """Cross entropy of scores with 0 or 1, in which easy examples count less; a negative ``alpha`` leaves classes
    unweighed."""
    p = inputs.sigmoid()
    loss = (
        F.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
        * (1 - (p * targets + (1 - p) * (1 - targets))) ** gamma
    )
    if alpha >= 0:
        loss = (alpha * targets + (1 - alpha) * (1 - targets)) * loss
    return reduced(loss, reduction)
