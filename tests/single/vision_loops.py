"""roi_align and deform_conv2d as plain loops over numbers."""

from __future__ import annotations

import math

import numpy as np


def _at(image: np.ndarray, y: float, x: float) -> float:
    """Bilinear between the four pixels around a position; pixels outside are 0."""
    height, width = image.shape
    total = 0.0
    for row in (math.floor(y), math.floor(y) + 1):
        for column in (math.floor(x), math.floor(x) + 1):
            if 0 <= row < height and 0 <= column < width:
                total += float(image[row, column]) * (1 - abs(y - row)) * (1 - abs(x - column))
    return total


def _held(image: np.ndarray, y: float, x: float) -> float:
    """As ``_at``, but the edge's value holds for one pixel outside, and 0 farther out."""
    height, width = image.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return 0.0
    return _at(image, min(max(y, 0), height - 1), min(max(x, 0), width - 1))


def roi_means(
    maps: np.ndarray, rois: np.ndarray, scale: float, pooled: tuple[int, int], ratio: int, aligned: bool
) -> np.ndarray:
    out = np.zeros((len(rois), maps.shape[1], *pooled), np.float32)
    shift = 0.5 if aligned else 0.0
    for r, (number, x1, y1, x2, y2) in enumerate(rois.tolist()):
        left, top = x1 * scale - shift, y1 * scale - shift
        width, height = x2 * scale - shift - left, y2 * scale - shift - top
        if not aligned:
            width, height = max(width, 1.0), max(height, 1.0)
        cell_h, cell_w = height / pooled[0], width / pooled[1]
        down = ratio if ratio > 0 else math.ceil(cell_h)
        across = ratio if ratio > 0 else math.ceil(cell_w)
        for c in range(maps.shape[1]):
            for i in range(pooled[0]):
                for j in range(pooled[1]):
                    found = [
                        _held(
                            maps[int(number), c],
                            top + i * cell_h + (a + 0.5) * cell_h / down,
                            left + j * cell_w + (b + 0.5) * cell_w / across,
                        )
                        for a in range(down)
                        for b in range(across)
                    ]
                    out[r, c, i, j] = sum(found) / len(found)
    return out


def deformed(
    maps, weight, offset, mask, bias, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups, offset_groups
) -> np.ndarray:
    batch, channels = maps.shape[:2]
    filters, inner, kernel_h, kernel_w = weight.shape
    out = np.zeros((batch, filters, *offset.shape[2:]), np.float32)
    for n in range(batch):
        for f in range(filters):
            for i in range(offset.shape[2]):
                for j in range(offset.shape[3]):
                    total = float(bias[f])
                    for c in range(inner):
                        channel = f // (filters // groups) * inner + c
                        group = channel // (channels // offset_groups)
                        for a in range(kernel_h):
                            for b in range(kernel_w):
                                tap = (group * kernel_h + a) * kernel_w + b
                                y = i * stride_h - pad_h + a * dilation_h + float(offset[n, 2 * tap, i, j])
                                x = j * stride_w - pad_w + b * dilation_w + float(offset[n, 2 * tap + 1, i, j])
                                total += (
                                    _at(maps[n, channel], y, x) * float(mask[n, tap, i, j]) * float(weight[f, c, a, b])
                                )
                    out[n, f, i, j] = total
    return out
