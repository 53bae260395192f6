"""``oneflow.data.image``: decoding, resizing and cropping of images, also fused into one pass."""

from oneflow.engine.data.image import (
    Window,
    aspect_window,
    backend,
    center_crop,
    decode,
    decode_crop_resize_normalize,
    keep_aspect_size,
    random_crop_window,
    resize,
    resize_auto,
    shorter_side_size,
    size_of,
)

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
