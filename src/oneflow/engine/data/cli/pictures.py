"""Pictures as records: the features they get, and the files they come from."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from oneflow.engine.core.errors import DataError
from oneflow.engine.core.optional import package_or_stub
from oneflow.engine.core.record.messages import FeatureValue

Image = package_or_stub("PIL.Image", "vision", "making records of images")

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
_COLORSPACES = {"L": "Gray", "1": "Gray", "I": "Gray", "I;16": "Gray", "LA": "Gray", "CMYK": "CMYK", "YCbCr": "YCbCr"}


@dataclass(frozen=True)
class Picture:
    """A picture file and its class. ``text`` is the class in words, ``synset`` its WordNet name."""

    path: str
    label: int
    text: str
    synset: str = ""


def file_features(picture: Picture, format: str) -> dict[str, FeatureValue]:
    """The record of a picture file; the file's bytes are stored as they are."""
    try:
        with open(picture.path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise DataError(f"{picture.path} cannot be read: {error.strerror}") from None
    extra = {"class/synset": text(picture.synset)} if picture.synset else {}
    return _keyed(format, picture_features(data, picture.path, picture.label, picture.text) | extra)


def pixel_features(pixels: np.ndarray, name: str, label: int, words: str, format: str) -> dict[str, FeatureValue]:
    """The record of uint8 pixels, (height, width) or (height, width, 3); they are stored as PNG, which loses
    nothing."""
    packed = io.BytesIO()
    Image.fromarray(pixels).save(packed, "PNG")
    return _keyed(format, picture_features(packed.getvalue(), name, label, words))


def picture_features(data: bytes, name: str, label: int, words: str) -> dict[str, FeatureValue]:
    """The usual features of an image classification record, under their OFRecord names."""
    width, height, kind, mode = _header(data, name)
    file = os.path.basename(name)
    return {
        "encoded": FeatureValue("bytes_list", [data]),
        "class/label": number(label),
        "class/text": text(words),
        "height": number(height),
        "width": number(width),
        "channels": number(_bands(mode)),
        "colorspace": text(_COLORSPACES.get(mode, "RGB")),
        "format": text(kind),
        "filename": text(file),
        "data_id": text(os.path.splitext(file)[0]),
    }


def _keyed(format: str, features: dict[str, FeatureValue]) -> dict[str, FeatureValue]:
    """TFRecord programs look for the same features under ``image/``."""
    return {f"image/{key}": value for key, value in features.items()} if format == "tfrecord" else features


def _header(data: bytes, name: str) -> tuple[int, int, str, str]:
    """Width, height, format and mode of a picture, without its pixels."""
    try:
        with Image.open(io.BytesIO(data)) as image:
            return *image.size, image.format or "", image.mode
    except (Image.UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{name} is not a picture that can be read: {error}") from None


def _bands(mode: str) -> int:
    return len(Image.new(mode, (1, 1)).getbands())


def number(value: int) -> FeatureValue:
    return FeatureValue("int32_list", np.array([value], np.int32))


def text(value: str) -> FeatureValue:
    return FeatureValue("bytes_list", [value.encode("utf-8", "surrogateescape")])


def class_folders(root: str) -> list[str]:
    """The names of the sub-folders, sorted; hidden ones left out."""
    try:
        with os.scandir(root) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise DataError(f"{root}: the folder cannot be read: {error.strerror}") from None
    return names


def picture_files(folder: str, recursive: bool = True, endings: Sequence[str] = ENDINGS) -> list[str]:
    """The picture files of a folder and, unless told otherwise, those under it, sorted; other files and hidden ones are
    left out."""
    found: list[str] = []
    for here, folders, files in os.walk(folder, onerror=_raise):
        folders[:] = sorted(name for name in folders if recursive and not name.startswith("."))
        found += (os.path.join(here, name) for name in _pictures(files, endings))
    return found


def _pictures(files: Iterable[str], endings: Sequence[str]) -> list[str]:
    return sorted(name for name in files if name.lower().endswith(tuple(endings)) and not name.startswith("."))


def _raise(error: OSError) -> None:
    raise DataError(f"{error.filename}: the folder cannot be read: {error.strerror}") from None
