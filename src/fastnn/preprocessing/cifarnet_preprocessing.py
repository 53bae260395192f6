"""CifarNet's: crops of a padded picture, distorted colours, mean 0 and deviation 1."""

from __future__ import annotations

import random

import numpy as np

from fastnn.preprocessing import pixels
from fastnn.preprocessing.pixels import Draws, Picture

_PADDING = 4


def preprocess_for_train(
    image: Picture, output_height: int, output_width: int, padding: int = _PADDING, draws: Draws = random.random
) -> Picture:
    """A random crop of the picture with ``padding`` zeros around it, perhaps flipped, in random brightness and
    contrast; standardized."""
    image = pixels.require_picture(image).astype(np.float32)
    if padding:
        image = np.pad(image, [(padding, padding), (padding, padding), (0, 0)])
    image = pixels.crop(image, pixels.random_window(draws, image.shape[0], image.shape[1], output_height, output_width))
    image = pixels.random_flip(image, draws)
    image = pixels.random_brightness(image, draws, 63)
    image = pixels.random_contrast(image, draws, 0.2, 1.8)
    return pixels.standardized(image)


def preprocess_for_eval(image: Picture, output_height: int, output_width: int) -> Picture:
    """The middle, standardized."""
    return pixels.standardized(
        pixels.crop_or_pad(pixels.require_picture(image), output_height, output_width).astype(np.float32)
    )


def preprocess_image(
    image: Picture,
    output_height: int,
    output_width: int,
    is_training: bool = False,
    padding: int = _PADDING,
    draws: Draws = random.random,
) -> Picture:
    """``preprocess_for_train`` or ``preprocess_for_eval``."""
    if is_training:
        return preprocess_for_train(image, output_height, output_width, padding, draws)
    return preprocess_for_eval(image, output_height, output_width)
