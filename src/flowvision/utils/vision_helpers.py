"""Pictures side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from oneflow.engine.core.errors import ArgumentError


def make_grid(
    tensor: Any,
    nrow: int = 8,
    padding: int = 2,
    normalize: bool = False,
    range: Sequence[float] | None = None,
    scale_each: bool = False,
    pad_value: float = 0,
) -> Tensor:
    """The pictures of a batch (n, channels, height, width), or of a list, as one: ``nrow`` in a row, ``padding`` pixels
    between them.

    ``normalize`` shifts them to 0 to 1, from ``range`` or from their lowest and highest, with ``scale_each`` each by
    its own. Grey ones become coloured.
    """
    batch = torch.stack(list(tensor)) if isinstance(tensor, (list, tuple)) else tensor
    batch = batch[(None,) * (4 - batch.ndim)] if batch.ndim < 4 else batch
    if batch.ndim != 4:
        raise ArgumentError(f"make_grid takes pictures of at most 4 dims, got {batch.ndim}")
    batch = batch.expand(-1, 3, -1, -1) if batch.shape[1] == 1 else batch
    if normalize:
        batch = (
            torch.stack([_stretched(picture, range) for picture in batch]) if scale_each else _stretched(batch, range)
        )
    count, channels, height, width = batch.shape
    if count == 1:
        return batch[0]
    columns = min(nrow, count)
    rows = math.ceil(count / columns)
    grid = batch.new_full(
        (channels, (height + padding) * rows + padding, (width + padding) * columns + padding), pad_value
    )
    for number, picture in enumerate(batch):
        row, column = divmod(number, columns)
        top, left = row * (height + padding) + padding, column * (width + padding) + padding
        grid[:, top : top + height, left : left + width] = picture
    return grid


def save_image(
    tensor: Any,
    fp: Any,
    nrow: int = 8,
    padding: int = 2,
    normalize: bool = False,
    range: Sequence[float] | None = None,
    scale_each: bool = False,
    pad_value: float = 0,
    format: str | None = None,
) -> None:
    """Writes ``make_grid`` of pictures with values from 0 to 1 as a file."""
    grid = make_grid(tensor, nrow, padding, normalize, range, scale_each, pad_value)
    pixels = grid.mul(255).add(0.5).clamp(0, 255).to(torch.uint8).permute(1, 2, 0).cpu().numpy()
    Image.fromarray(pixels).save(fp, format=format)


def _stretched(picture: Tensor, bounds: Sequence[float] | None) -> Tensor:
    low, high = (float(picture.min()), float(picture.max())) if bounds is None else (float(bounds[0]), float(bounds[1]))
    return picture.clamp(low, high).sub(low).div(max(high - low, 1e-5))
