"""Pictures that are tensors already."""

from __future__ import annotations

import torch
from torch import Tensor

from oneflow.engine.ops.row import Family, require

ROWS = Family()


@ROWS.op("image.crop_normalize")
def crop_normalize(
    x: Tensor,
    *,
    size: tuple[int, int],
    position: tuple[float, float],
    mean: tuple[float, ...],
    std: tuple[float, ...],
    channels: int,
    layout: str,
) -> Tensor:
    """The part of ``size`` (height, width) of uint8 (N, H, W, C) whose free space is divided by ``position``; then ``(x
    - mean) / std``."""
    require(
        x.dtype == torch.uint8 and x.dim() == 4,
        f"pictures are uint8 of (batch, height, width, channels), got {x.dtype} of {tuple(x.shape)}",
    )
    require(x.shape[3] == channels, f"the color space has {channels} channels, the pictures {x.shape[3]}")
    free = x.shape[1] - size[0], x.shape[2] - size[1]
    require(min(free) >= 0, f"a crop of {size} (height, width) does not fit in pictures of {tuple(x.shape[1:3])}")
    top, left = int(free[0] * position[0]), int(free[1] * position[1])
    part = x[:, top : top + size[0], left : left + size[1]].to(torch.float32)
    numbers = zip(_each(mean, channels), _each(std, channels))
    result = torch.stack([(part[..., c] - m) / s for c, (m, s) in enumerate(numbers)], -1)
    return result.permute(0, 3, 1, 2).contiguous() if layout == "CHW" else result


def _each(numbers: tuple[float, ...], channels: int) -> tuple[float, ...]:
    return numbers * channels if len(numbers) == 1 else numbers


@ROWS.op("image.mirror")
def mirror(x: Tensor, which: Tensor, *, dim: int) -> Tensor:
    """``x`` with the samples whose ``which`` is not 0 flipped along ``dim``."""
    require(
        tuple(which.shape) == (x.shape[0],),
        f"one number a sample says whether it is mirrored, got {tuple(which.shape)} for {x.shape[0]}",
    )
    return torch.where((which != 0).view(-1, *[1] * (x.dim() - 1)), x.flip(dim), x)
