"""``python -m fastnn.datasets.download_and_convert_data --dataset_name=cifar10 --dataset_dir=DIR``: the TFRecord files
of a data set, and labels.txt.

Sources are downloaded where there is a network; ``--source_dir`` names a folder that has them. Each file is written
beside its place and renamed.
"""

from __future__ import annotations

import io
import random
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

from fastnn.datasets.dataset_factory import BUILT_IN_FILES
from fastnn.errors import FlagError
from fastnn.flags import Flag, Flags
from flowvision.datasets import CIFAR10
from flowvision.datasets.utils import MissingDataError, download_and_extract_archive, extract_archive
from oneflow.data import RecordWriter
from oneflow.engine.core.errors import DataError, OneFlowError, nearest
from oneflow.engine.core.record.messages import FeatureValue
from oneflow.engine.data.cli.options import progress
from oneflow.engine.data.cli.output import bounds, write_labels
from oneflow.engine.data.cli.pictures import class_folders, picture_files
from oneflow.engine.data.formats.mnist_files import find_mnist, read_mnist
from oneflow.engine.data.image.decode import size_of

Features = dict[str, FeatureValue]
Item = Callable[[], Features]

MNIST_NAMES = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "size",
    "seven",
    "eight",
    "nine",
)  # "size" is slim's, and labels.txt is to be equal
_FLOWERS_URL = "http://download.tensorflow.org/example_images/flower_photos.tgz"
_FLOWERS_FOLDER = "flower_photos"
_FLOWERS_VALIDATION = 350

_ARCHIVES = {"cifar10": "cifar-10-python.tar.gz", "flowers": f"{_FLOWERS_FOLDER}.tgz", "mnist": "the four idx files"}

_FLAGS = [
    Flag("dataset_name", str, None, "cifar10, mnist or flowers", "Flags"),
    Flag("dataset_dir", str, None, "the folder to write to", "Flags"),
    Flag("source_dir", str, None, "a folder that has the files of the source; without it they are downloaded", "Flags"),
]


def main(argv: Sequence[str] | None = None) -> None:
    """The program. A wrong flag or file ends it with one line."""
    words = list(sys.argv[1:] if argv is None else argv)
    flags = Flags(_FLAGS)
    if "--help" in words or "-h" in words:
        print(flags.help("download_and_convert_data.py"))
        return
    try:
        flags.parse(words)
        convert(flags.dataset_name, flags.dataset_dir, flags.source_dir)
    except OneFlowError as error:
        sys.exit(f"fastnn: {error}")


def convert(dataset_name: str | None, dataset_dir: str | None, source_dir: str | None = None) -> None:
    """Writes the files of a data set, unless all of them are there."""
    if not dataset_name:
        raise FlagError(f"You must supply the dataset name with --dataset_name: one of {', '.join(_READERS)}")
    if not dataset_dir:
        raise FlagError("You must supply the dataset directory with --dataset_dir")
    if dataset_name not in _READERS:
        raise FlagError(
            f"--dataset_name={dataset_name} is not one of {', '.join(_READERS)}.{nearest(dataset_name, _READERS)}"
        )
    target = Path(dataset_dir)
    train, test = BUILT_IN_FILES[dataset_name]
    if all((target / name).exists() for name in [*train, *test]):
        print("Dataset files already exist. Exiting without re-creating them.")
        return
    target.mkdir(parents=True, exist_ok=True)
    with _source(target, source_dir) as folder:
        try:
            splits, names = _READERS[dataset_name](Path(folder), source_dir is None)
        except MissingDataError as error:
            raise DataError(
                f"{error.reason.split(';')[0]}; put {_ARCHIVES[dataset_name]} into a folder and name it by --source_dir"
            ) from None
        for files, items in zip((train, test), splits):
            _write(target, files, items)
    write_labels(target, names)
    print(
        f"Finished converting the {dataset_name} dataset: {len(splits[0])} training and {len(splits[1])} test pictures "
        f"in {target}"
    )


def _source(target: Path, source_dir: str | None) -> AbstractContextManager[str]:
    """A folder of the user's, or one for downloads that is removed again."""
    if source_dir is None:
        return TemporaryDirectory(prefix=".download-", dir=target)
    if not Path(source_dir).is_dir():
        raise FlagError(f"--source_dir={source_dir} is no folder")
    return nullcontext(source_dir)


def _write(target: Path, files: Sequence[str], items: Sequence[Item]) -> None:
    """Equally many records for each file, in order."""
    if len(items) < len(files):
        raise DataError(f"{len(items)} pictures cannot be shared out among {len(files)} files, each has at least one")
    with progress(len(items), "pictures") as done:
        for number, name in enumerate(files):
            start, end = bounds(len(items), len(files), number)
            with RecordWriter(target / name, "tfrecord") as writer:
                for item in items[start:end]:
                    writer.write(item())
                    done(1)


Splits = tuple[Sequence[Item], Sequence[Item]]
Read = tuple[Splits, Sequence[str]]


def _mnist(folder: Path, may_download: bool) -> Read:
    files = read_mnist(find_mnist() if may_download else find_mnist(folder))
    return (_pixels(files.train_images, files.train_labels), _pixels(files.test_images, files.test_labels)), MNIST_NAMES


def _cifar10(folder: Path, may_download: bool) -> Read:
    train, test = (CIFAR10(folder, train=is_train, download=may_download) for is_train in (True, False))
    return (_pixels(train.data, train.targets), _pixels(test.data, test.targets)), train.classes


def _flowers(folder: Path, may_download: bool) -> Read:
    root = _flower_photos(folder, may_download)
    names = class_folders(str(root))
    if not names:
        raise DataError(
            f"{root} has no folders, one for each kind of flower; --source_dir has {_FLOWERS_FOLDER}.tgz, or what is "
            f"in it"
        )
    pictures = [
        (path, label)
        for label, name in enumerate(names)
        for path in picture_files(str(root / name), endings=(".jpg", ".jpeg"))
    ]
    random.Random(0).shuffle(pictures)  # of a sorted list, so that every machine has the same split
    held = _FLOWERS_VALIDATION if len(pictures) > 2 * _FLOWERS_VALIDATION else len(pictures) // 10
    items = [_file_item(path, label) for path, label in pictures]
    return (items[held:], items[:held]), names


def _flower_photos(folder: Path, may_download: bool) -> Path:
    if may_download:
        download_and_extract_archive(_FLOWERS_URL, folder, remove_finished=True)
    elif not (folder / _FLOWERS_FOLDER).is_dir() and (folder / f"{_FLOWERS_FOLDER}.tgz").is_file():
        extract_archive(folder / f"{_FLOWERS_FOLDER}.tgz", folder)
    return folder / _FLOWERS_FOLDER if (folder / _FLOWERS_FOLDER).is_dir() else folder


_READERS: dict[str, Callable[[Path, bool], Read]] = {"cifar10": _cifar10, "flowers": _flowers, "mnist": _mnist}


def _pixels(pixels: np.ndarray, labels: Sequence[int] | np.ndarray) -> list[Item]:
    return [_png_item(picture, int(label)) for picture, label in zip(pixels, labels)]


def _png_item(pixels: np.ndarray, label: int) -> Item:
    def item() -> Features:
        packed = io.BytesIO()
        Image.fromarray(np.asarray(pixels)).save(packed, "PNG")
        return _features(packed.getvalue(), "png", label, pixels.shape[1], pixels.shape[0])

    return item


def _file_item(path: str, label: int) -> Item:
    def item() -> Features:
        data = Path(path).read_bytes()
        try:
            width, height = size_of(data)
        except DataError as error:
            raise DataError(f"{path}: {error.reason}") from None
        return _features(data, "jpg", label, width, height)

    return item


def _features(data: bytes, kind: str, label: int, width: int, height: int) -> Features:
    """The features that slim's converters write."""
    numbers = {"image/class/label": label, "image/height": height, "image/width": width}
    return {
        "image/encoded": FeatureValue("bytes_list", [data]),
        "image/format": FeatureValue("bytes_list", [kind.encode()]),
        **{name: FeatureValue("int64_list", np.array([number])) for name, number in numbers.items()},
    }


if __name__ == "__main__":
    main()
