"""Inception's, MobileNet's and NASNet's: distorted crops and colours, from -1 to 1."""

from __future__ import annotations

import random

import numpy as np

from fastnn.preprocessing import pixels
from fastnn.preprocessing.pixels import Draws, Picture

_BRIGHTNESS, _SATURATION, _HUE, _CONTRAST = 32.0 / 255.0, (0.5, 1.5), 0.2, (0.5, 1.5)
_ORDERS = (
    ("brightness", "saturation", "hue", "contrast"),
    ("saturation", "brightness", "contrast", "hue"),
    ("contrast", "hue", "brightness", "saturation"),
    ("hue", "saturation", "contrast", "brightness"),
)
_FAST_ORDERS = (("brightness", "saturation"), ("saturation", "brightness"))
_RESIZES = (pixels.resize_bilinear, pixels.resize_nearest, pixels.resize_bicubic, pixels.resize_area)


def distort_color(
    image: Picture, color_ordering: int = 0, fast_mode: bool = True, draws: Draws = random.random
) -> Picture:
    """Random brightness and saturation, and without ``fast_mode`` hue and contrast, in one of several orders; cut to
    [0, 1]."""
    orders = _FAST_ORDERS if fast_mode else _ORDERS
    if not 0 <= color_ordering < len(_ORDERS):
        raise ValueError(f"color_ordering is from 0 to {len(_ORDERS) - 1}, got {color_ordering}")
    for kind in orders[min(color_ordering, len(orders) - 1)]:
        if kind == "brightness":
            image = pixels.random_brightness(image, draws, _BRIGHTNESS)
        elif kind == "saturation":
            image = pixels.random_saturation(image, draws, *_SATURATION)
        elif kind == "hue":
            image = pixels.random_hue(image, draws, _HUE)
        else:
            image = pixels.random_contrast(image, draws, *_CONTRAST)
    return np.clip(image, 0.0, 1.0)


def preprocess_for_train(
    image: Picture,
    height: int,
    width: int,
    bbox: np.ndarray | None = None,
    fast_mode: bool = True,
    random_crop: bool = True,
    use_grayscale: bool = False,
    draws: Draws = random.random,
) -> Picture:
    """A crop that covers a tenth of the picture (of one of ``bbox``, if given) or more, of random shape, resized,
    perhaps flipped, distorted in colour. ``fast_mode`` always resizes bilinearly and leaves hue and contrast alone."""
    pixels.require_picture(image, (3,))
    if random_crop:
        image = pixels.crop(image, pixels.distorted_window(draws, image.shape[0], image.shape[1], bbox))
    resize = _RESIZES[0 if fast_mode else pixels.whole(draws, 0, 3)]
    image = _from_zero_to_one(resize(image, height, width), image.dtype)
    image = pixels.random_flip(image, draws)
    image = distort_color(image, 0 if fast_mode else pixels.whole(draws, 0, 3), fast_mode, draws)
    if use_grayscale:
        image = pixels.grayscale(image)
    return (image - 0.5) * 2.0


def preprocess_for_eval(
    image: Picture,
    height: int | None,
    width: int | None,
    central_fraction: float | None = 0.875,
    central_crop: bool = True,
    use_grayscale: bool = False,
) -> Picture:
    """The middle (``central_fraction`` of each side), resized if a size is given."""
    dtype = pixels.require_picture(image, (3,)).dtype
    if central_crop and central_fraction:
        image = pixels.crop(image, pixels.central_fraction_window(image.shape[0], image.shape[1], central_fraction))
    resized = pixels.resize_bilinear(image, height, width) if height and width else image.astype(np.float32)
    image = _from_zero_to_one(resized, dtype)
    if use_grayscale:
        image = pixels.grayscale(image)
    return (image - 0.5) * 2.0


def _from_zero_to_one(image: Picture, dtype: np.dtype) -> Picture:
    """Pictures of floats are from 0 to 1 already, as TensorFlow has them."""
    return image / np.float32(255.0) if dtype == np.uint8 else image


def preprocess_image(
    image: Picture,
    height: int,
    width: int,
    is_training: bool = False,
    bbox: np.ndarray | None = None,
    fast_mode: bool = True,
    crop_image: bool = True,
    use_grayscale: bool = False,
    central_fraction: float | None = 0.875,
    draws: Draws = random.random,
) -> Picture:
    """``preprocess_for_train`` or ``preprocess_for_eval``; ``crop_image=False`` leaves the crop of either out."""
    if is_training:
        return preprocess_for_train(image, height, width, bbox, fast_mode, crop_image, use_grayscale, draws)
    return preprocess_for_eval(image, height, width, central_fraction, crop_image, use_grayscale)
