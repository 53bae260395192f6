"""Records of a compressed picture and its class, as slim's converters write them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastnn import tf


def picture_parser(label_shape: Sequence[int] = (), default_format: str = "png") -> Callable[[Any], tuple[Any, Any]]:
    """``parse_fn(example)`` gives the picture, uint8 of (height, width, 3), and the label of one serialized Example."""
    features = {
        "image/encoded": tf.FixedLenFeature((), tf.string, default_value=""),
        "image/format": tf.FixedLenFeature((), tf.string, default_value=default_format),
        "image/class/label": tf.FixedLenFeature(
            label_shape, tf.int64, default_value=tf.zeros(label_shape, dtype=tf.int64)
        ),
    }

    def parse_fn(example: Any) -> tuple[Any, Any]:
        found = tf.parse_single_example(example, features)
        return tf.image.decode_jpeg(found["image/encoded"], channels=3), found["image/class/label"]

    return parse_fn
