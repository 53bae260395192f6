"""Boxes as rows of (x1, y1, x2, y2)."""

from __future__ import annotations

import math

import torch

from oneflow import Tensor
from oneflow.engine.core.errors import ArgumentError

_FORMATS = ("xyxy", "xywh", "cxcywh")


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """The boxes to keep, best score first: none overlaps a better one by more than ``iou_threshold``."""
    order = scores.argsort(descending=True, stable=True)
    overlaps = box_iou(boxes[order], boxes[order]) > iou_threshold
    gone = torch.zeros(len(order), dtype=torch.bool)
    kept = []
    for at in range(len(order)):
        if not gone[at]:
            kept.append(at)
            gone |= overlaps[at]
    return order[kept]


def batched_nms(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    """:func:`nms` among boxes of the same class each; ``idxs`` has the classes."""
    if not boxes.numel():
        return torch.empty(0, dtype=torch.int64)
    # Classes are moved so far apart that their boxes do not meet.
    apart = idxs.to(boxes) * (boxes.max() + 1)
    return nms(boxes + apart[:, None], scores, iou_threshold)


def remove_small_boxes(boxes: Tensor, min_size: float) -> Tensor:
    """The numbers of the boxes whose sides are both at least ``min_size``."""
    return torch.where(((boxes[:, 2:] - boxes[:, :2]) >= min_size).all(1))[0]


def clip_boxes_to_image(boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """Boxes cut to a picture of (height, width)."""
    height, width = size
    return torch.stack([boxes[..., 0::2].clamp(0, width), boxes[..., 1::2].clamp(0, height)], -1).flatten(-2)


def box_convert(boxes: Tensor, in_fmt: str, out_fmt: str) -> Tensor:
    """From one of xyxy, xywh (corner and size) and cxcywh (centre and size) to another."""
    for name, given in (("in_fmt", in_fmt), ("out_fmt", out_fmt)):
        if given not in _FORMATS:
            raise ArgumentError(f"{name} is one of {', '.join(_FORMATS)}, got {given!r}")
    first, second = boxes[..., :2], boxes[..., 2:]
    if in_fmt == "xywh":
        second = first + second
    elif in_fmt == "cxcywh":
        first, second = first - second / 2, first + second / 2
    if out_fmt == "xywh":
        second = second - first
    elif out_fmt == "cxcywh":
        first, second = (first + second) / 2, second - first
    return torch.cat([first, second], -1)


def box_area(boxes: Tensor) -> Tensor:
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def _shared(boxes1: Tensor, boxes2: Tensor) -> tuple[Tensor, Tensor]:
    """The areas of every pair's intersection and union."""
    low = torch.maximum(boxes1[:, None, :2], boxes2[None, :, :2])
    high = torch.minimum(boxes1[:, None, 2:], boxes2[None, :, 2:])
    inside = (high - low).clamp(min=0).prod(-1)
    return inside, box_area(boxes1)[:, None] + box_area(boxes2)[None] - inside


def _around(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """The sides of the smallest box around every pair."""
    low = torch.minimum(boxes1[:, None, :2], boxes2[None, :, :2])
    high = torch.maximum(boxes1[:, None, 2:], boxes2[None, :, 2:])
    return (high - low).clamp(min=0)


def box_iou(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """Intersection over union of every pair, (N, M)."""
    inside, union = _shared(boxes1, boxes2)
    return inside / union


def generalized_box_iou(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """IoU less the empty part of the box around both."""
    inside, union = _shared(boxes1, boxes2)
    area = _around(boxes1, boxes2).prod(-1)
    return inside / union - (area - union) / area


def distance_box_iou(boxes1: Tensor, boxes2: Tensor, eps: float = 1e-07) -> Tensor:
    """IoU less the squared distance of the centres over the squared diagonal around both."""
    diagonal = _around(boxes1, boxes2).square().sum(-1) + eps
    centres = (boxes1[:, None, :2] + boxes1[:, None, 2:] - boxes2[None, :, :2] - boxes2[None, :, 2:]) / 2
    return box_iou(boxes1, boxes2) - centres.square().sum(-1) / diagonal


def complete_box_iou(boxes1: Tensor, boxes2: Tensor, eps: float = 1e-07) -> Tensor:
    """:func:`distance_box_iou` less how far the shapes differ."""
    sides1, sides2 = boxes1[:, 2:] - boxes1[:, :2], boxes2[:, 2:] - boxes2[:, :2]
    angles1, angles2 = (torch.atan(sides[:, 0] / sides[:, 1]) for sides in (sides1, sides2))
    shape = 4 / math.pi**2 * (angles1[:, None] - angles2[None]).square()
    with torch.no_grad():
        weight = shape / (1 - box_iou(boxes1, boxes2) + shape + eps)
    return distance_box_iou(boxes1, boxes2, eps) - weight * shape


def masks_to_boxes(masks: Tensor) -> Tensor:
    """The smallest box around each mask of (N, height, width)."""
    found = torch.zeros(len(masks), 4)
    for box, mask in zip(found, masks):
        y, x = torch.where(mask != 0)
        box.copy_(torch.stack([x.min(), y.min(), x.max(), y.max()]))
    return found
