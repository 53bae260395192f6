"""``tf.image``: compressed pictures to tensors of (height, width, channels)."""

from __future__ import annotations

import io
from typing import Any, NoReturn

import torch
from torch import Tensor

from fastnn.tf.absent import absent
from fastnn.tf.dtypes import float32, torch_dtype, uint8
from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.data.image.decode import decode

__all__ = ["convert_image_dtype", "decode_gif", "decode_image", "decode_jpeg", "decode_png"]


def decode_image(
    contents: Any, channels: int | None = 0, dtype: Any = uint8, name: str | None = None, expand_animations: bool = True
) -> Tensor:
    """A JPEG, PNG, BMP or GIF (its first frame), told by its first bytes. ``channels``: 1, 3, or 0 for those that the
    picture has."""
    if channels not in (None, 0, 1, 3):
        raise ArgumentError(f"channels is 0, 1 or 3, got {channels!r}; transparency is left out")
    image = torch.from_numpy(decode(contents, "GRAY" if (channels or _channels_of(contents)) == 1 else "RGB"))
    return image if torch_dtype(dtype) is torch.uint8 else convert_image_dtype(image, dtype)


def _channels_of(contents: Any) -> int:
    from PIL import Image

    with Image.open(io.BytesIO(contents)) as image:
        return 1 if image.mode in ("1", "L", "LA") or image.mode.startswith("I") else 3


def decode_jpeg(contents: Any, channels: int = 0, ratio: int = 1, name: str | None = None, **options: Any) -> Tensor:
    """As ``decode_image``; TensorFlow's decoders do not insist on their format either. ``ratio`` is 1."""
    if ratio != 1:
        raise ArgumentError(f"ratio is 1, got {ratio!r}; resize the picture in preprocessing")
    return decode_image(contents, channels)


def decode_png(contents: Any, channels: int = 0, dtype: Any = uint8, name: str | None = None) -> Tensor:
    """As ``decode_image``."""
    return decode_image(contents, channels, dtype)


def decode_gif(contents: Any, name: str | None = None) -> Tensor:
    """The first frame, in 3 channels."""
    return decode_image(contents, 3)


def convert_image_dtype(image: Tensor, dtype: Any = float32, saturate: bool = False, name: str | None = None) -> Tensor:
    """uint8 to floats from 0 to 1, or back."""
    dtype = torch_dtype(dtype)
    if image.dtype is dtype:
        return image
    if image.dtype is torch.uint8 and dtype.is_floating_point:
        return image.to(dtype) / 255
    if image.is_floating_point() and dtype is torch.uint8:
        scaled = image * 255.5
        return (scaled.clamp(0, 255) if saturate else scaled).to(torch.uint8)
    raise ArgumentError(f"a picture of {image.dtype} is not converted to {dtype}; uint8 and floats are")


def __getattr__(name: str) -> NoReturn:
    if name.startswith("__"):
        raise AttributeError(name)
    raise absent(f"tf.image.{name}", __all__)
