"""Windows of a map of tokens: cutting it into them, which pairs of pixels they hold, and which pixels of a shifted
window were apart."""

from __future__ import annotations

from typing import Any

import torch


def window_partition(x: Any, window_size: int) -> Any:
    """(N, H, W, C) to (N * windows, size, size, C)."""
    batch, height, width, channels = x.shape
    x = x.view(batch, height // window_size, window_size, width // window_size, window_size, channels)
    return x.transpose(2, 3).reshape(-1, window_size, window_size, channels)


def window_reverse(windows: Any, window_size: int, H: int, W: int) -> Any:
    """What :func:`window_partition` was given."""
    rows, columns = H // window_size, W // window_size
    x = windows.view(windows.shape[0] // (rows * columns), rows, columns, window_size, window_size, -1)
    return x.transpose(2, 3).reshape(x.shape[0], H, W, -1)


def relative_positions(window: tuple[int, int]) -> torch.Tensor:
    """(pixels, pixels): for each pair the row of a table that has one for every distance."""
    ys, xs = torch.meshgrid(torch.arange(window[0]), torch.arange(window[1]), indexing="ij")
    y, x = ys.flatten(), xs.flatten()
    return (y[:, None] - y + window[0] - 1) * (2 * window[1] - 1) + (x[:, None] - x + window[1] - 1)


def apart(resolution: tuple[int, int], window: int, shift: int) -> torch.Tensor:
    """(windows, pixels, pixels): 0, or -100 for pixels that the shift brought into one window from opposite edges."""
    regions = torch.zeros(1, *resolution, 1)
    parts = (slice(0, -window), slice(-window, -shift), slice(-shift, None))
    for number, (rows, columns) in enumerate((r, c) for r in parts for c in parts):
        regions[:, rows, columns] = number
    ids = window_partition(regions, window).flatten(1)
    return torch.where(ids[:, None] == ids[:, :, None], 0.0, -100.0)
