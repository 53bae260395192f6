"""Pictures: decoding, resizing, cropping, and all of it in one go into a batch."""

from oneflow.engine.data.image.crop import (
    Window,
    aspect_window,
    center_crop,
    keep_aspect_size,
    random_crop_window,
    shorter_side_size,
)
from oneflow.engine.data.image.decode import decode, size_of
from oneflow.engine.data.image.fused import backend, decode_crop_resize_normalize
from oneflow.engine.data.image.resize import resize, resize_auto

__all__ = [
    "Window",
    "aspect_window",
    "backend",
    "center_crop",
    "decode",
    "decode_crop_resize_normalize",
    "keep_aspect_size",
    "random_crop_window",
    "resize",
    "resize_auto",
    "shorter_side_size",
    "size_of",
]
