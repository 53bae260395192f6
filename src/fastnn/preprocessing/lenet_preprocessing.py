"""LeNet's: the middle of the picture, from -1 to 1."""

from __future__ import annotations

from fastnn.preprocessing import pixels
from fastnn.preprocessing.pixels import Picture


def preprocess_image(image: Picture, output_height: int, output_width: int, is_training: bool = False) -> Picture:
    """(x - 128) / 128 of the middle; the same in training and evaluation."""
    image = pixels.crop_or_pad(pixels.require_picture(image), output_height, output_width).astype("float32")
    return (image - 128.0) / 128.0
