"""Transforms of tensors (..., channels, height, width): uint8, or float from 0 to 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from flowvision.transforms.geometry import resized, sides
from oneflow.engine.core.errors import ArgumentError

_TENSOR_MODES = ("nearest", "bilinear", "bicubic")
_GREY = (0.2989, 0.587, 0.114)


def get_dimensions(img: Tensor) -> list[int]:
    """[channels, height, width]"""
    return [1 if img.ndim == 2 else img.shape[-3], img.shape[-2], img.shape[-1]]


def convert_image_dtype(image: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Another dtype with its range: floats go from 0 to 1, ints from 0 to their highest."""
    if image.dtype == dtype:
        return image
    if image.is_floating_point():
        if dtype.is_floating_point:
            return image.to(dtype)
        if (image.dtype, dtype) in (
            (torch.float32, torch.int32),
            (torch.float32, torch.int64),
            (torch.float64, torch.int64),
        ):
            raise ArgumentError(f"{image.dtype} has not the digits for {dtype}; convert to a smaller int")
        return image.mul(_highest(dtype) + 1.0 - 1e-3).to(dtype)
    if dtype.is_floating_point:
        return image.to(dtype) / _highest(image.dtype)
    if _highest(image.dtype) > _highest(dtype):
        return torch.div(image, (_highest(image.dtype) + 1) // (_highest(dtype) + 1), rounding_mode="floor").to(dtype)
    return image.to(dtype) * ((_highest(dtype) + 1) // (_highest(image.dtype) + 1))


def vflip(img: Tensor) -> Tensor:
    """Top and bottom exchanged."""
    return img.flip(-2)


def hflip(img: Tensor) -> Tensor:
    """Left and right exchanged."""
    return img.flip(-1)


def crop(img: Tensor, top: int, left: int, height: int, width: int) -> Tensor:
    """A part; outside the picture it is 0."""
    _, h, w = get_dimensions(img)
    inside = img[..., max(top, 0) : max(top + height, 0), max(left, 0) : max(left + width, 0)]
    missing = [max(-left, 0), max(left + width - max(w, left), 0), max(-top, 0), max(top + height - max(h, top), 0)]
    return F.pad(inside, missing) if any(missing) else inside


def rgb_to_grayscale(img: Tensor, num_output_channels: int = 1) -> Tensor:
    """Without colours, with one channel or three equal ones."""
    if num_output_channels not in (1, 3):
        raise ArgumentError(f"num_output_channels is 1 or 3, got {num_output_channels!r}")
    if get_dimensions(img)[0] == 3:
        red, green, blue = img.unbind(-3)
        grey = (_GREY[0] * red + _GREY[1] * green + _GREY[2] * blue).to(img.dtype).unsqueeze(-3)
    elif get_dimensions(img)[0] == 1:
        grey = img
    else:
        raise ArgumentError(f"a picture to make grey has 1 or 3 channels, got {get_dimensions(img)[0]}")
    return grey.expand(*grey.shape[:-3], 3, *grey.shape[-2:]) if num_output_channels == 3 else grey


def adjust_brightness(img: Tensor, brightness_factor: float) -> Tensor:
    """0 is black, 1 the picture itself."""
    return _blend(img, torch.zeros_like(img), _factor("brightness_factor", brightness_factor))


def adjust_contrast(img: Tensor, contrast_factor: float) -> Tensor:
    """0 is grey, 1 the picture itself."""
    floats = img.dtype if img.is_floating_point() else torch.float32
    mean = rgb_to_grayscale(img).to(floats).mean(dim=(-3, -2, -1), keepdim=True)
    return _blend(img, mean, _factor("contrast_factor", contrast_factor))


def adjust_saturation(img: Tensor, saturation_factor: float) -> Tensor:
    """0 is black and white, 1 the picture itself."""
    if get_dimensions(img)[0] == 1:
        return img
    return _blend(img, rgb_to_grayscale(img), _factor("saturation_factor", saturation_factor))


def adjust_hue(img: Tensor, hue_factor: float) -> Tensor:
    """Hues moved along the circle, by half of it at most."""
    if not -0.5 <= hue_factor <= 0.5:
        raise ArgumentError(f"hue_factor is from -0.5 to 0.5, got {hue_factor!r}")
    if get_dimensions(img)[0] == 1:
        return img
    hue, saturation, value = _hsv(convert_image_dtype(img, torch.float32))
    return convert_image_dtype(_rgb((hue + hue_factor) % 1.0, saturation, value), img.dtype)


def pad(img: Tensor, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> Tensor:
    """More pixels at the sides: of one value, or the outermost, or mirrored without ("reflect") or with ("symmetric")
    the outermost."""
    left, top, right, bottom = sides(padding)
    if padding_mode == "constant":
        if isinstance(fill, (tuple, list)) and len(fill) > 1:
            return torch.stack(
                [
                    F.pad(channel, [left, right, top, bottom], value=value)
                    for channel, value in zip(img.unbind(-3), fill)
                ],
                dim=-3,
            )
        return F.pad(img, [left, right, top, bottom], value=fill[0] if isinstance(fill, (tuple, list)) else fill)
    if padding_mode not in ("edge", "reflect", "symmetric"):
        raise ArgumentError(f"padding_mode is 'constant', 'edge', 'reflect' or 'symmetric', got {padding_mode!r}")
    _, height, width = get_dimensions(img)
    rows, columns = _sources(height, top, bottom, padding_mode), _sources(width, left, right, padding_mode)
    return img[..., rows.to(img.device), :][..., columns.to(img.device)]


def resize(img: Tensor, size: Any, interpolation: str = "bilinear") -> Tensor:
    """Another size: (height, width), or one number for the shorter side. What is made smaller is smoothed first, as PIL
    does it."""
    if interpolation not in _TENSOR_MODES:
        raise ArgumentError(
            f"a tensor is resized by one of {list(_TENSOR_MODES)}, got {interpolation!r}; other modes are for PIL "
            f"pictures"
        )
    _, height, width = get_dimensions(img)
    target = resized(size, height, width)
    if target == (height, width):
        return img
    return _in_floats(img, lambda batch: _interpolated(batch, target, interpolation))


def affine(img: Tensor, matrix: Sequence[float], interpolation: str = "nearest", fill: Any = None) -> Tensor:
    """The pixels that the six numbers of ``matrix`` lead to, in pixels from the middle of the picture."""
    return _sampled(img, matrix, img.shape[-2], img.shape[-1], interpolation, fill)


def rotate(
    img: Tensor, matrix: Sequence[float], interpolation: str = "nearest", expand: bool = False, fill: Any = None
) -> Tensor:
    """As ``affine``. ``expand`` makes room for all of the picture."""
    height, width = img.shape[-2:]
    if expand:
        a, b, _, c, d, _ = matrix
        corners = [(x * width / 2, y * height / 2) for x in (-1, 1) for y in (-1, 1)]
        xs, ys = (
            [d * x - b * y for x, y in corners],
            [a * y - c * x for x, y in corners],
        )  # the inverse of the inverse, whose determinant is 1
        width, height = (_span(values) for values in (xs, ys))
    return _sampled(img, matrix, height, width, interpolation, fill)


def gaussian_blur(img: Tensor, kernel_size: Sequence[int], sigma: Sequence[float]) -> Tensor:
    """Every pixel the mean of its surroundings, weighted by a bell of ``kernel_size`` (width, height) and ``sigma``;
    mirrored at the sides."""

    def blurred(batch: Tensor) -> Tensor:
        kernel = (_bell(kernel_size[1], sigma[1])[:, None] * _bell(kernel_size[0], sigma[0])[None, :]).to(batch)
        half_x, half_y = kernel_size[0] // 2, kernel_size[1] // 2
        channels = batch.shape[1]
        padded = F.pad(batch, [half_x, half_x, half_y, half_y], mode="reflect")
        return F.conv2d(padded, kernel.expand(channels, 1, *kernel.shape), groups=channels)

    return _in_floats(img, blurred)


def _highest(dtype: torch.dtype) -> int:
    return 1 if dtype == torch.bool else torch.iinfo(dtype).max


def _factor(what: str, value: float) -> float:
    if value < 0:
        raise ArgumentError(f"{what} is at least 0, got {value!r}")
    return value


def _blend(img: Tensor, other: Tensor, ratio: float) -> Tensor:
    top = 1.0 if img.is_floating_point() else float(_highest(img.dtype))
    return (ratio * img + (1.0 - ratio) * other).clamp(0, top).to(img.dtype)


def _hsv(img: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    red, green, blue = img.unbind(-3)
    high, low = img.amax(-3), img.amin(-3)
    spread = high - low
    divisor = torch.where(spread == 0, 1, spread)
    hue = torch.where(
        high == red,
        ((green - blue) / divisor) % 6,
        torch.where(high == green, (blue - red) / divisor + 2, (red - green) / divisor + 4),
    )
    return (hue / 6) % 1.0, spread / torch.where(high == 0, 1, high), high


def _rgb(hue: Tensor, saturation: Tensor, value: Tensor) -> Tensor:
    """Each channel falls off with the distance of the hue from its own."""

    def channel(offset: float) -> Tensor:
        place = (offset + hue * 6) % 6
        return value - value * saturation * torch.minimum(place, 4 - place).clamp(0, 1)

    return torch.stack([channel(5), channel(3), channel(1)], dim=-3)


def _sources(size: int, before: int, after: int, mode: str) -> Tensor:
    """Which row or column each of the padded ones repeats."""
    places = torch.arange(-before, size + after)
    if mode == "edge":
        return places.clamp(0, size - 1)
    if mode == "symmetric":
        folded = places % (2 * size)
        return torch.where(folded < size, folded, 2 * size - 1 - folded)
    if max(before, after) >= size:
        raise ArgumentError(f"reflect mirrors at most {size - 1} pixels of {size}, got {max(before, after)}")
    folded = places % max(2 * size - 2, 1)
    return torch.where(folded < size, folded, 2 * size - 2 - folded)


def _in_floats(img: Tensor, change: Any) -> Tensor:
    """``change`` on a batch of four dims of floats; the result has the dtype and leading dims of ``img``."""
    batch = img.reshape(-1, *img.shape[-3:]) if img.ndim >= 3 else img.reshape(1, 1, *img.shape)
    made = change(batch if img.is_floating_point() else batch.to(torch.float32))
    made = made.reshape(*img.shape[:-2], *made.shape[-2:])
    if img.is_floating_point():
        return made
    return made.round().clamp(0, _highest(img.dtype)).to(img.dtype)


def _interpolated(batch: Tensor, size: tuple[int, int], mode: str) -> Tensor:
    if mode == "nearest":
        return F.interpolate(batch, size, mode="nearest-exact")
    return F.interpolate(batch, size, mode=mode, align_corners=False, antialias=True)


def _sampled(img: Tensor, matrix: Sequence[float], height: int, width: int, mode: str, fill: Any) -> Tensor:
    if mode not in ("nearest", "bilinear"):
        raise ArgumentError(f"a tensor is turned and moved by 'nearest' or 'bilinear', got {mode!r}")
    h, w = img.shape[-2:]
    y, x = torch.meshgrid(torch.arange(height) - (height - 1) / 2, torch.arange(width) - (width - 1) / 2, indexing="ij")
    a, b, c, d, e, f = matrix
    grid = torch.stack([(a * x + b * y + c) * 2 / w, (d * x + e * y + f) * 2 / h], dim=-1).float().to(img.device)

    def sampled(batch: Tensor) -> Tensor:
        places = grid.expand(len(batch), *grid.shape)
        found = F.grid_sample(batch, places, mode=mode, padding_mode="zeros", align_corners=False)
        if fill is None:
            return found
        covered = F.grid_sample(
            torch.ones_like(batch[:, :1]), places, mode=mode, padding_mode="zeros", align_corners=False
        )
        values = torch.as_tensor(
            fill if isinstance(fill, (tuple, list)) else [fill], dtype=batch.dtype, device=batch.device
        )
        return found + (1 - covered) * values.reshape(1, -1, 1, 1)

    return _in_floats(img, sampled)


def _span(values: Sequence[float]) -> int:
    low, high = min(values), max(values)
    return math.ceil(round(high, 4)) - math.floor(round(low, 4))


def _bell(size: int, sigma: float) -> Tensor:
    weights = torch.exp(-0.5 * (torch.linspace(-(size - 1) / 2, (size - 1) / 2, size) / sigma) ** 2)
    return weights / weights.sum()
