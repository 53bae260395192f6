"""``flow.nn.functional.deform_conv2d``: a convolution whose kernel points are moved, each by an offset of its own at
each place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from oneflow.engine.core.errors import ArgumentError


@dataclass(frozen=True)
class _Sizes:
    """Extents of one call: batch, channels in, groups of offsets, kernel and result (height, width each)."""

    batch: int
    channels: int
    offset_groups: int
    kernel: tuple[int, int]
    result: tuple[int, int]

    @property
    def points(self) -> int:
        return self.kernel[0] * self.kernel[1]


def deform_conv2d(
    input: Tensor,
    offset: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    mask: Tensor | None = None,
) -> Tensor:
    """Convolution of (N, C, H, W) that samples bilinearly at moved points; zeros lie outside the picture.

    ``offset`` is (N, 2 · groups · kh · kw, oh, ow): for each offset group and kernel point how far down, then how far
    right. ``mask`` (N, groups · kh · kw, oh, ow) scales each sample. ``weight`` is (out, C / weight groups, kh, kw).
    """
    steps, around, spread = _pair("stride", stride), _pair("padding", padding), _pair("dilation", dilation)
    sizes = _sizes(input, offset, weight, mask, steps, around, spread)
    down, right = _places(offset, sizes, steps, around, spread)
    maps = input.reshape(sizes.batch * sizes.offset_groups, -1, *input.shape[2:])
    sampled = bilinear(maps, down, right)  # batch and offset groups, channels per group, points and places
    if mask is not None:
        sampled = sampled * mask.reshape(sizes.batch * sizes.offset_groups, 1, -1)
    columns = sampled.reshape(sizes.batch, sizes.channels // weight.shape[1], weight.shape[1] * sizes.points, -1)
    kernels = weight.reshape(columns.shape[1], -1, columns.shape[2])
    result = torch.einsum("gok,ngkp->ngop", kernels, columns).reshape(sizes.batch, weight.shape[0], *sizes.result)
    return result if bias is None else result + bias.reshape(-1, 1, 1)


def _pair(what: str, value: int | Sequence[int]) -> tuple[int, int]:
    found = (value, value) if isinstance(value, int) else tuple(value)
    if len(found) != 2:
        raise ArgumentError(f"deform_conv2d: {what} is an int or two, got {value!r}")
    return found[0], found[1]


def _sizes(
    input: Tensor,
    offset: Tensor,
    weight: Tensor,
    mask: Tensor | None,
    steps: tuple[int, int],
    around: tuple[int, int],
    spread: tuple[int, int],
) -> _Sizes:
    if not input.dim() == offset.dim() == weight.dim() == 4:
        raise ArgumentError(
            f"deform_conv2d: input, offset and weight have rank 4, got {input.dim()}, {offset.dim()} and {weight.dim()}"
        )
    batch, channels, *extent = input.shape
    kernel = weight.shape[2], weight.shape[3]
    out = [(extent[d] + 2 * around[d] - spread[d] * (kernel[d] - 1) - 1) // steps[d] + 1 for d in range(2)]
    points = kernel[0] * kernel[1]
    groups = offset.shape[1] // (2 * points)
    wanted = (batch, 2 * groups * points, *out)
    if groups < 1 or tuple(offset.shape) != wanted or channels % groups:
        raise ArgumentError(
            f"deform_conv2d: offset is (batch, 2 x groups x {points}, {out[0]}, {out[1]}) with groups that divide the "
            f"{channels} channels, "
            f"got {tuple(offset.shape)} for a batch of {batch}"
        )
    if channels % weight.shape[1] or weight.shape[0] % (channels // weight.shape[1]):
        raise ArgumentError(
            f"deform_conv2d: weight {tuple(weight.shape)} does not fit {channels} channels; it is (out, channels / "
            f"groups, kh, kw)"
        )
    if mask is not None and tuple(mask.shape) != (batch, groups * points, *out):
        raise ArgumentError(f"deform_conv2d: mask is {(batch, groups * points, *out)}, got {tuple(mask.shape)}")
    return _Sizes(batch, channels, groups, kernel, (out[0], out[1]))


def _places(
    offset: Tensor, sizes: _Sizes, steps: tuple[int, int], around: tuple[int, int], spread: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """Where each kernel point falls at each place of the result: down and right, of (batch x offset groups, points x
    places)."""
    moved = offset.reshape(sizes.batch, sizes.offset_groups, sizes.points, 2, *sizes.result)
    found = []
    for d in range(2):
        tap = torch.arange(sizes.kernel[d], device=offset.device, dtype=offset.dtype) * spread[d] - around[d]
        place = torch.arange(sizes.result[d], device=offset.device, dtype=offset.dtype) * steps[d]
        taps = tap.reshape((-1, 1, 1, 1) if d == 0 else (1, -1, 1, 1))
        places = place.reshape((1, 1, -1, 1) if d == 0 else (1, 1, 1, -1))
        grid = (taps + places).expand(*sizes.kernel, *sizes.result).reshape(sizes.points, *sizes.result)
        found.append((moved[:, :, :, d] + grid).reshape(sizes.batch * sizes.offset_groups, -1))
    return found[0], found[1]


def bilinear(maps: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Values of ``maps`` (N, C, H, W) at real positions y and x (N, P): (N, C, P); pixels outside count as 0."""
    height, width = maps.shape[2:]
    top, left = y.floor(), x.floor()
    flat = maps.flatten(2)
    total = flat.new_zeros(*maps.shape[:2], y.shape[1])
    for row, share_y in ((top, 1 - (y - top)), (top + 1, y - top)):
        for column, share_x in ((left, 1 - (x - left)), (left + 1, x - left)):
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            place = row.clamp(0, height - 1).long() * width + column.clamp(0, width - 1).long()
            taken = flat.gather(2, place[:, None].expand(-1, maps.shape[1], -1))
            total = total + taken * torch.where(inside, share_y * share_x, 0)[:, None]
    return total
