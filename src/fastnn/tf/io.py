"""``tf.io``: later names of the same functions."""

from __future__ import annotations

from typing import NoReturn

from fastnn.tf.absent import absent
from fastnn.tf.example import FixedLenFeature, VarLenFeature, decode_raw, parse_single_example
from fastnn.tf.image import decode_image, decode_jpeg, decode_png

__all__ = [
    "FixedLenFeature",
    "VarLenFeature",
    "decode_image",
    "decode_jpeg",
    "decode_png",
    "decode_raw",
    "parse_single_example",
]


def __getattr__(name: str) -> NoReturn:
    if name.startswith("__"):
        raise AttributeError(name)
    raise absent(f"tf.io.{name}", __all__)
