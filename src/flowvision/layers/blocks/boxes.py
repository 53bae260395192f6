"""The published import path of boxes among blocks, and two of them for numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from flowvision.ops.boxes import batched_nms, box_area, box_iou, clip_boxes_to_image, nms, remove_small_boxes

__all__ = [
    "batched_nms",
    "box_area",
    "box_area_np",
    "box_iou",
    "box_iou_np",
    "clip_boxes_to_image",
    "nms",
    "remove_small_boxes",
]

Array = npt.NDArray[Any]


def box_area_np(boxes: Array) -> Array:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def box_iou_np(boxes1: Array, boxes2: Array) -> Array:
    """Intersection over union of every pair."""
    low, high = np.maximum(boxes1[:, None, :2], boxes2[:, :2]), np.minimum(boxes1[:, None, 2:], boxes2[:, 2:])
    inside = np.clip(high - low, 0, None).prod(2)
    return inside / (box_area_np(boxes1)[:, None] + box_area_np(boxes2) - inside)
