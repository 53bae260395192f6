"""VGG's and ResNet's: crops of a picture of random size, less the mean colour."""

from __future__ import annotations

import random

import numpy as np

from fastnn.preprocessing import pixels
from fastnn.preprocessing.pixels import Draws, Picture
from oneflow.engine.core.errors import ArgumentError

_MEANS = np.array([123.68, 116.78, 103.94], np.float32)
_RESIZE_SIDE_MIN, _RESIZE_SIDE_MAX = 256, 512


def preprocess_for_train(
    image: Picture,
    output_height: int,
    output_width: int,
    resize_side_min: int = _RESIZE_SIDE_MIN,
    resize_side_max: int = _RESIZE_SIDE_MAX,
    draws: Draws = random.random,
) -> Picture:
    """The shorter side becomes one of ``resize_side_min``, ..., ``resize_side_max``; then a random crop, perhaps
    flipped."""
    if resize_side_min > resize_side_max:
        raise ArgumentError(f"resize_side_min is at most resize_side_max, got {resize_side_min} and {resize_side_max}")
    height, width = _sized(image, pixels.whole(draws, resize_side_min, resize_side_max))
    window = pixels.random_window(draws, height, width, output_height, output_width)
    return pixels.random_flip(pixels.resize_bilinear(image, height, width, window), draws) - _MEANS


def preprocess_for_eval(
    image: Picture, output_height: int, output_width: int, resize_side: int = _RESIZE_SIDE_MIN
) -> Picture:
    """The shorter side becomes ``resize_side``; then the middle."""
    height, width = _sized(image, resize_side)
    if output_height > height or output_width > width:
        raise ArgumentError(
            f"a crop of {output_height} x {output_width} cannot be taken from a picture of {height} x {width}; raise "
            f"resize_side_min"
        )
    window = (height - output_height) // 2, (width - output_width) // 2, output_height, output_width
    return pixels.resize_bilinear(image, height, width, window) - _MEANS


def _sized(image: Picture, smallest: int) -> tuple[int, int]:
    pixels.require_picture(image, (3,))
    return pixels.aspect_preserving_size(image.shape[0], image.shape[1], smallest)


def preprocess_image(
    image: Picture,
    output_height: int,
    output_width: int,
    is_training: bool = False,
    resize_side_min: int = _RESIZE_SIDE_MIN,
    resize_side_max: int = _RESIZE_SIDE_MAX,
    draws: Draws = random.random,
) -> Picture:
    """``preprocess_for_train``, or ``preprocess_for_eval`` with ``resize_side_min``."""
    if is_training:
        return preprocess_for_train(image, output_height, output_width, resize_side_min, resize_side_max, draws)
    return preprocess_for_eval(image, output_height, output_width, resize_side_min)
