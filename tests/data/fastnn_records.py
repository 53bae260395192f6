"""Small data sets in FastNN's files, made here."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

from oneflow.data import write_records
from oneflow.engine.core.record.messages import FeatureValue


def picture_of(label: int, rng: np.random.Generator, size: int = 32) -> np.ndarray:
    """Noise with a bright half in one of three colours: what the label says can be learnt."""
    pixels = rng.integers(0, 90, (size, size, 3))
    half = slice(None, size // 2) if label < 3 else slice(size // 2, None)
    pixels[half, :, label % 3] += 130
    return pixels.astype(np.uint8)


def png_record(label: int, pixels: np.ndarray) -> dict[str, FeatureValue]:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return {
        "image/encoded": FeatureValue("bytes_list", [file.getvalue()]),
        "image/format": FeatureValue("bytes_list", [b"png"]),
        "image/class/label": FeatureValue("int64_list", [label]),
    }


def write_cifar10(folder: Path, train: int = 48, test: int = 12, classes: int = 6) -> None:
    """cifar10_train.tfrecord and cifar10_test.tfrecord."""
    rng = np.random.default_rng(0)
    for name, count in (("train", train), ("test", test)):
        labels = [number % classes for number in range(count)]
        write_records(
            folder / f"cifar10_{name}.tfrecord",
            [png_record(label, picture_of(label, rng)) for label in labels],
            "tfrecord",
        )


def write_numbered(folder: Path, files: int, each: int) -> list[str]:
    """Files of 4 x 4 pictures whose labels count through all of them."""
    paths = []
    for file in range(files):
        records = [png_record(file * each + number, np.full((4, 4, 3), number, np.uint8)) for number in range(each)]
        paths.append(str(folder / f"{file}.tfrecord"))
        write_records(paths[-1], records, "tfrecord")
    return paths
