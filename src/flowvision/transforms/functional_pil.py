"""Transforms of PIL pictures, by PIL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from flowvision.transforms.geometry import resized, sides
from oneflow.engine.core.errors import ArgumentError

PADDING_MODES = ("constant", "edge", "reflect", "symmetric")
_NO_HUE = ("L", "1", "I", "F")


def get_dimensions(img: Image.Image) -> list[int]:
    """[channels, height, width]"""
    return [len(img.getbands()), img.height, img.width]


def hflip(img: Image.Image) -> Image.Image:
    """Left and right exchanged."""
    return img.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


def vflip(img: Image.Image) -> Image.Image:
    """Top and bottom exchanged."""
    return img.transpose(Image.Transpose.FLIP_TOP_BOTTOM)


def adjust_brightness(img: Image.Image, brightness_factor: float) -> Image.Image:
    """0 is black, 1 the picture itself."""
    return ImageEnhance.Brightness(img).enhance(brightness_factor)


def adjust_contrast(img: Image.Image, contrast_factor: float) -> Image.Image:
    """0 is grey, 1 the picture itself."""
    return ImageEnhance.Contrast(img).enhance(contrast_factor)


def adjust_saturation(img: Image.Image, saturation_factor: float) -> Image.Image:
    """0 is black and white, 1 the picture itself."""
    return ImageEnhance.Color(img).enhance(saturation_factor)


def adjust_hue(img: Image.Image, hue_factor: float) -> Image.Image:
    """Hues moved along the circle, by half of it at most."""
    if img.mode in _NO_HUE:
        return img
    hue, saturation, value = img.convert("HSV").split()
    moved = np.asarray(hue) + np.array(hue_factor * 255).astype(np.int64).astype(np.uint8)  # wraps round
    return Image.merge("HSV", (Image.fromarray(moved, "L"), saturation, value)).convert(img.mode)


def pad(img: Image.Image, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> Image.Image:
    """More pixels at the sides: of one colour, or the outermost, or mirrored without ("reflect") or with ("symmetric")
    the outermost."""
    if padding_mode not in PADDING_MODES:
        raise ArgumentError(f"padding_mode is one of {list(PADDING_MODES)}, got {padding_mode!r}")
    left, top, right, bottom = sides(padding)
    if padding_mode == "constant":
        made = ImageOps.expand(img, border=(left, top, right, bottom), fill=_colour(img, fill))
        return made
    if img.mode == "P":
        made = Image.fromarray(np.pad(np.asarray(img), ((top, bottom), (left, right)), mode=padding_mode))  # type: ignore[call-overload]
        made.putpalette(img.getpalette())  # type: ignore[arg-type]
        return made
    if min(left, top, right, bottom) < 0:
        img = img.crop((-min(left, 0), -min(top, 0), img.width + min(right, 0), img.height + min(bottom, 0)))
        left, top, right, bottom = (max(side, 0) for side in (left, top, right, bottom))
    array = np.asarray(img)
    widths = ((top, bottom), (left, right), (0, 0))[: array.ndim]
    return Image.fromarray(np.pad(array, widths, mode=padding_mode))  # type: ignore[call-overload]


def crop(img: Image.Image, top: int, left: int, height: int, width: int) -> Image.Image:
    """A part; outside the picture it is black."""
    return img.crop((left, top, left + width, top + height))


def resize(img: Image.Image, size: Any, interpolation: int = Image.Resampling.BILINEAR) -> Image.Image:
    """Another size: (height, width), or one number for the shorter side."""
    height, width = resized(size, img.height, img.width)
    return img if (width, height) == img.size else img.resize((width, height), interpolation)


def affine(img: Image.Image, matrix: Sequence[float], interpolation: int = 0, fill: Any = None) -> Image.Image:
    """The pixels that the six numbers of ``matrix`` lead to."""
    return img.transform(img.size, Image.Transform.AFFINE, matrix, interpolation, fillcolor=_colour(img, fill))


def rotate(
    img: Image.Image, angle: float, interpolation: int = 0, expand: bool = False, center: Any = None, fill: Any = None
) -> Image.Image:
    """Turned counter-clockwise, in degrees. ``expand`` makes room for all of it."""
    return img.rotate(angle, interpolation, expand, center, fillcolor=_colour(img, fill))  # type: ignore[arg-type]


def to_grayscale(img: Image.Image, num_output_channels: int) -> Image.Image:
    """Without colours, with one channel or three equal ones."""
    if num_output_channels not in (1, 3):
        raise ArgumentError(f"num_output_channels is 1 or 3, got {num_output_channels!r}")
    grey = img.convert("L")
    return grey if num_output_channels == 1 else Image.merge("RGB", (grey, grey, grey))


def _colour(img: Image.Image, fill: Any) -> Any:
    """A colour as this picture takes it: one number, or one for each channel."""
    bands = len(img.getbands())
    if fill is None:
        return None
    values = list(fill) if isinstance(fill, (tuple, list)) else [fill] * bands
    if len(values) == 1:
        values *= bands
    if len(values) != bands:
        raise ArgumentError(f"fill is a number or one for each of the {bands} channels of the picture, got {fill!r}")
    numbers = tuple(float(value) if img.mode == "F" else int(value) for value in values)
    return numbers[0] if bands == 1 else numbers
