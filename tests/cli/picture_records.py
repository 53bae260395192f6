"""What tests of the data commands are written with."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from oneflow.engine.data.cli import main
from oneflow.engine.data.dataset import Parts, expand

CLASSES = {"cat": 5, "dog": 4, "eel": 3}


def picture(seed: int, kind: str = "JPEG", mode: str = "RGB", size: tuple[int, int] = (40, 30)) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 255, (4, 5, 3), np.uint8)
    packed = io.BytesIO()
    Image.fromarray(pixels).resize(size).convert(mode).save(packed, kind)
    return packed.getvalue()


def records(path, format=None):
    with Parts(expand(path), format) as parts:
        return [record.features for record in parts]


def run(*arguments) -> int:
    return main([str(argument) for argument in arguments])
