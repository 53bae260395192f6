"""Boxes and sampling between pixels: nms, roi_align, deform_conv2d, as formulas on whole tensors."""

from __future__ import annotations

import torch

from oneflow.engine.core.errors import ArgumentError
from oneflow.nn.functional import _deform
from oneflow.nn.functional._deform import bilinear


def nms(boxes: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """The boxes (x1, y1, x2, y2) that stay, best first: each drops those after it that overlap it by more than
    ``iou_threshold``."""
    order = scores.argsort(descending=True, stable=True)
    overlaps = _iou(boxes[order]) > iou_threshold
    stays = torch.ones(len(order), dtype=torch.bool, device=boxes.device)
    for i in range(len(order)):
        if stays[i]:
            stays[i + 1 :] &= ~overlaps[i, i + 1 :]
    return order[stays]


def _iou(boxes: torch.Tensor) -> torch.Tensor:
    """Intersection over union of every pair of boxes."""
    low = torch.maximum(boxes[:, None, :2], boxes[None, :, :2])
    high = torch.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
    common = (high - low).clamp(min=0).prod(2)
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    return common / (area[:, None] + area[None, :] - common)


def roi_align(
    x: torch.Tensor,
    rois: torch.Tensor,
    spatial_scale: float,
    pooled_h: int,
    pooled_w: int,
    sampling_ratio: int = -1,
    aligned: bool = False,
) -> torch.Tensor:
    """Means of samples between pixels over a grid of ``pooled_h`` x ``pooled_w`` cells in each box of ``rois`` (image,
    x1, y1, x2, y2).

    ``sampling_ratio`` samples per side of a cell, as many as it has pixels if not above 0; ``aligned`` moves boxes by
    half a pixel.
    """
    if rois.dim() != 2 or rois.shape[1] != 5:
        raise ArgumentError(
            f"roi_align takes rois of shape (boxes, 5): image number and x1, y1, x2, y2; got {tuple(rois.shape)}"
        )
    cells = [_cells(x, roi, spatial_scale, (pooled_h, pooled_w), sampling_ratio, aligned) for roi in rois]
    return torch.stack(cells) if cells else x.new_zeros(0, x.shape[1], pooled_h, pooled_w)


def _cells(
    x: torch.Tensor, roi: torch.Tensor, scale: float, pooled: tuple[int, int], ratio: int, aligned: bool
) -> torch.Tensor:
    corners = roi[1:] * scale - (0.5 if aligned else 0.0)
    sides = corners[2:] - corners[:2]  # width, height
    sides = sides if aligned else sides.clamp(min=1.0)
    across, down = (_samples(float(corners[i]), float(sides[i]), pooled[1 - i], ratio) for i in (0, 1))
    grid_y, grid_x = torch.meshgrid(down.flatten().to(x), across.flatten().to(x), indexing="ij")
    image = x[int(roi[0]) : int(roi[0]) + 1]
    return (
        _edge_bilinear(image, grid_y, grid_x)
        .reshape(x.shape[1], pooled[0], down.shape[1], pooled[1], across.shape[1])
        .mean((2, 4))
    )


def _samples(start: float, length: float, cells: int, ratio: int) -> torch.Tensor:
    """Positions of the samples along one side: (cells, samples per cell)."""
    per_cell = ratio if ratio > 0 else max(1, -int(-length // cells))
    steps = (torch.arange(per_cell, dtype=torch.float64) + 0.5) / per_cell
    return start + (torch.arange(cells, dtype=torch.float64)[:, None] + steps) * (length / cells)


def _edge_bilinear(image: torch.Tensor, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Samples of one image; up to one pixel outside the edge's value holds, farther out 0."""
    height, width = image.shape[2:]
    inside = (y >= -1) & (y <= height) & (x >= -1) & (x <= width)
    held_y, held_x = y.clamp(0, height - 1).reshape(1, -1), x.clamp(0, width - 1).reshape(1, -1)
    return bilinear(image, held_y, held_x) * inside.reshape(1, 1, -1)


def deform_conv2d(
    input: torch.Tensor,
    weight: torch.Tensor,
    offset: torch.Tensor,
    mask: torch.Tensor | None,
    bias: torch.Tensor | None,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> torch.Tensor:
    """A convolution whose samples are moved by ``offset`` (N, offset_groups * kh * kw * 2, oh, ow; y before x) and
    scaled by ``mask``."""
    _require_groups(input, weight, offset, groups, offset_groups)
    steps, around, spread = (stride_h, stride_w), (pad_h, pad_w), (dilation_h, dilation_w)
    return _deform.deform_conv2d(input, offset, weight, bias, steps, around, spread, mask if use_mask else None)


def _require_groups(
    input: torch.Tensor, weight: torch.Tensor, offset: torch.Tensor, groups: int, offset_groups: int
) -> None:
    """Both follow from the shapes; other numbers are a mistake."""
    if not input.dim() == offset.dim() == weight.dim() == 4:
        return  # the convolution says so
    found = input.shape[1] // weight.shape[1], offset.shape[1] // (2 * weight.shape[2] * weight.shape[3])
    if found != (groups, offset_groups):
        raise ArgumentError(
            f"deform_conv2d: weight {tuple(weight.shape)} and offset {tuple(offset.shape)} have {found[0]} groups and "
            f"{found[1]} groups of "
            f"offsets for {input.shape[1]} channels, got groups={groups} and offset_groups={offset_groups}; give "
            f"these, or other shapes"
        )
