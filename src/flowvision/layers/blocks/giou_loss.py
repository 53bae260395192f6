"""Generalised intersection over union as a loss."""

from __future__ import annotations

import torch

from flowvision.layers.blocks.reduction import reduced
from flowvision.ops.boxes import box_area
from oneflow import Tensor


def generalized_box_iou_loss(boxes1: Tensor, boxes2: Tensor, reduction: str = "none", eps: float = 1e-07) -> Tensor:
    """1 - GIoU of each box with the one of its row."""
    inside = (
        (torch.minimum(boxes1[..., 2:], boxes2[..., 2:]) - torch.maximum(boxes1[..., :2], boxes2[..., :2]))
        .clamp(min=0)
        .prod(-1)
    )
    around = (torch.maximum(boxes1[..., 2:], boxes2[..., 2:]) - torch.minimum(boxes1[..., :2], boxes2[..., :2])).prod(
        -1
    )
    union = box_area(boxes1) + box_area(boxes2) - inside
    return reduced(1 - inside / (union + eps) + (around - union) / (around + eps), reduction)
