"""Resizing pictures: Pillow's antialiased filter, and OpenCV's formulas, which OneFlow's ops were defined by.

"antialias"  triangle filter that widens when shrinking: equal to Pillow's bilinear within one level
"linear"     OpenCV's INTER_LINEAR within one level: two neighbours per axis, whatever the scale
"area"       OpenCV's INTER_AREA within one level: the mean of the covered area when both sides shrink
"nearest"    OpenCV's INTER_NEAREST
"cubic"      OpenCV's INTER_CUBIC within one level: four neighbours per axis, whatever the scale
"auto"       OneFlow's rule: "linear" where the result has more pixels, "area" otherwise
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from oneflow.engine.core.errors import ArgumentError

METHODS = ("antialias", "linear", "area", "nearest", "auto", "cubic")  # the extension knows them by their place


class Taps(NamedTuple):
    """One axis of a separable filter: for each result (row) the source indices it adds up and their weights, which sum
    to 1."""

    indices: np.ndarray
    weights: np.ndarray


def resize(image: np.ndarray, width: int, height: int, method: str = "antialias") -> np.ndarray:
    """The uint8 picture (height, width, channels) in another size, by one of ``METHODS``."""
    check_method(method)
    if width < 1 or height < 1:
        raise ArgumentError(f"a picture of {width} x {height} was asked for; both must be at least 1")
    old_height, old_width = image.shape[:2]
    if (width, height) == (old_width, old_height):
        return image
    if method == "auto":
        method = auto_method(old_width, old_height, width, height)
    if method in ("antialias", "linear"):
        return _by_torch(image, width, height, antialias=method == "antialias")
    if method == "cubic":
        return _cubic(image, width, height)
    if method == "nearest":
        return image[nearest_indices(old_height, height)[:, None], nearest_indices(old_width, width)]
    axis = (
        _area if old_width >= width and old_height >= height else _area_enlarging
    )  # OpenCV averages only where both sides shrink
    return _separable(image, axis(old_height, height), axis(old_width, width))


def resize_auto(image: np.ndarray, width: int, height: int) -> np.ndarray:
    """OneFlow's default interpolation."""
    return resize(image, width, height, "auto")


def check_method(method: str) -> None:
    if method not in METHODS:
        raise ArgumentError(f"a resize method is one of {', '.join(METHODS)}; got {method!r}")


def auto_method(old_width: int, old_height: int, width: int, height: int) -> str:
    return "linear" if old_width * old_height < width * height else "area"


def _by_torch(image: np.ndarray, width: int, height: int, antialias: bool) -> np.ndarray:
    # A batch of one whose strides say channels-last in all four dimensions: torch's fast way for bytes. A picture with
    # gaps between its rows is copied here, because torch would set all cores to it, which pictures resized by several
    # threads do not need.
    source = torch.from_numpy(np.ascontiguousarray(image)).unsqueeze(0).permute(0, 3, 1, 2)
    result = torch.nn.functional.interpolate(
        source, (height, width), mode="bilinear", align_corners=False, antialias=antialias
    )
    return result[0].permute(1, 2, 0).numpy()


def _cubic(image: np.ndarray, width: int, height: int) -> np.ndarray:
    source = torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1).unsqueeze(0).to(torch.float32)
    result = torch.nn.functional.interpolate(source, (height, width), mode="bicubic", align_corners=False)
    return result[0].round().clamp(0, 255).to(torch.uint8).permute(1, 2, 0).contiguous().numpy()


def nearest_indices(old: int, new: int) -> np.ndarray:
    """Rounded as OpenCV rounds: where a pixel ends, the last bit decides which one is taken."""
    return np.minimum((np.arange(new) * (1 / (new / old))).astype(np.int64), old - 1)


def _area_enlarging(old: int, new: int) -> Taps:
    first = nearest_indices(old, new)
    share = (np.arange(1, new + 1) - (first + 1) * (new / old)).astype(np.float32)
    share = np.where(share <= 0, 0.0, share - np.floor(share))
    indices = np.stack([first, np.minimum(first + 1, old - 1)], 1)
    return Taps(indices, np.stack([1 - share, share], 1).astype(np.float32))


def _area(old: int, new: int) -> Taps:
    scale = old / new
    edges = np.arange(new + 1) * scale
    low, high = edges[:-1, None], edges[1:, None]
    indices = np.floor(low).astype(np.int64) + np.arange(int(np.ceil(scale)) + 1)
    covered = np.minimum(indices + 1, high) - np.maximum(indices, low)
    weights = np.clip(covered, 0, None)
    weights[weights < 1e-3] = 0  # as OpenCV does with slivers that are only rounding
    weights /= weights.sum(1, keepdims=True)
    return Taps(np.minimum(indices, old - 1), weights.astype(np.float32))


def _separable(image: np.ndarray, rows: Taps, columns: Taps) -> np.ndarray:
    # Rows first: they lie in one piece, and usually fewer are left of them for the columns.
    return np.rint(_weighted(_weighted(image, rows, axis=0), columns, axis=1)).astype(np.uint8)


def _weighted(values: np.ndarray, taps: Taps, axis: int) -> np.ndarray:
    shape = [1] * values.ndim
    shape[axis] = -1
    total = None
    for indices, weights in zip(taps.indices.T, taps.weights.T):
        term = np.multiply(values.take(indices, axis), weights.reshape(shape), dtype=np.float32)
        total = term if total is None else np.add(total, term, out=total)
    assert total is not None
    return total
