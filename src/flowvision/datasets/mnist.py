"""MNIST and the sets in its format: idx files of 28 x 28 grey pictures."""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from flowvision.datasets.utils import MissingDataError, bring, check_integrity, extract_archive, verify_str_arg
from flowvision.datasets.vision import VisionDataset, label_at, pixels_at, transformed
from oneflow.engine.core.errors import DataError
from oneflow.engine.data.formats.idx import read_idx
from oneflow.engine.data.formats.mnist_files import MIRRORS, SHA256, SUBSET

_MNIST_FOLDER = "ONEFLOW_MNIST_DIR"
_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


class MNIST(VisionDataset):
    """60000 digits for training and 10000 for test: (PIL picture, or what ``transform`` makes of it; label).

    The files are ``<root>/MNIST/raw/{train,t10k}-{images-idx3,labels-idx1}-ubyte``, gzipped or not. What is missing
    comes, in this order, from the folder that the environment variable ONEFLOW_MNIST_DIR names; with ``download``, from
    ``source_url`` or the known mirrors; and, where there is no network, from the 5000 + 1000 pictures that are shipped,
    which is said on stderr. ``data`` is uint8 (n, 28, 28), ``targets`` int64.
    """

    folder_name = "MNIST"
    """The folder under ``root``; a class that derives from this one reads the same files."""
    mirrors: tuple[str, ...] = MIRRORS
    resources: dict[str, str] = dict(SHA256)
    """The files to download, with their checksums."""
    classes = [
        "0 - zero",
        "1 - one",
        "2 - two",
        "3 - three",
        "4 - four",
        "5 - five",
        "6 - six",
        "7 - seven",
        "8 - eight",
        "9 - nine",
    ]

    def __init__(
        self,
        root: str | os.PathLike[str],
        train: bool = True,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        download: bool = False,
        source_url: str | None = None,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train = train
        self.source_url = source_url
        folder = self._folder(download)
        images, labels = self._names(train)
        self.data, self.targets = _read_pair(_found(folder, images), _found(folder, labels))

    @property
    def raw_folder(self) -> str:
        """Where the files are looked for."""
        return os.path.join(self.root, self.folder_name, "raw")

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The number of each class."""
        return {name: number for number, name in enumerate(self.classes)}

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        target = label_at(self.targets.numpy(), index)  # four times as fast as the tensor's own indexing
        picture = transformed(pixels_at(self.data, index), self.transform)
        return picture, target if self.target_transform is None else self.target_transform(target)

    def __len__(self) -> int:
        return len(self.data)

    def extra_repr(self) -> str:
        return f"Split: {'Train' if self.train else 'Test'}"

    def _names(self, train: bool) -> tuple[str, str]:
        return (_FILES[0], _FILES[1]) if train else (_FILES[2], _FILES[3])

    def _folder(self, download: bool) -> Path:
        """A folder with the four files; they are brought if need be."""
        raw = Path(self.raw_folder)
        if _has_all(raw, _FILES):
            return raw
        if other := self._other_folder():
            return other
        try:
            self._download(raw, download)
        except MissingDataError as error:
            return self._without_network(error, download)
        return raw

    def _other_folder(self) -> Path | None:
        named = os.environ.get(_MNIST_FOLDER) if self.folder_name == "MNIST" else None
        if named and not _has_all(Path(named), _FILES):
            raise DataError(f"{_MNIST_FOLDER} is {named}, which lacks some of {', '.join(_FILES)}, gzipped or not")
        return Path(named) if named else None

    def _download(self, raw: Path, download: bool) -> None:
        mirrors = (self.source_url.rstrip("/") + "/",) if self.source_url else self.mirrors
        bring(self.folder_name, raw, mirrors, self.resources, download)
        for file in self.resources:
            extract_archive(raw / file)

    def _without_network(self, error: MissingDataError, download: bool) -> Path:
        if not download or self.folder_name != "MNIST":
            raise error
        print(
            f"flowvision: using the shipped subset of MNIST, 5000 training and 1000 test pictures: {error}",
            file=sys.stderr,
        )
        return SUBSET


class FashionMNIST(MNIST):
    """60000 pictures of clothes for training and 10000 for test, in MNIST's format, under
    ``<root>/FashionMNIST/raw``."""

    folder_name = "FashionMNIST"
    mirrors = ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",)
    resources = {
        "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
    }
    classes = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]


class KMNIST(MNIST):
    """60000 hiragana for training and 10000 for test, in MNIST's format, under ``<root>/KMNIST/raw``."""

    folder_name = "KMNIST"
    mirrors = ("http://codh.rois.ac.jp/kmnist/dataset/kmnist/",)
    resources = {
        "train-images-idx3-ubyte.gz": "bdb82020997e1d708af4cf47b453dcf7",
        "train-labels-idx1-ubyte.gz": "e144d726b3acfaa3e44228e80efcd344",
        "t10k-images-idx3-ubyte.gz": "5c965bf0a639b31b8f53240b1b52f4d7",
        "t10k-labels-idx1-ubyte.gz": "7320c461ea6c1c855c0b718fb2a4b134",
    }
    classes = ["o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"]


class EMNIST(MNIST):
    """Letters and digits; ``split`` is "byclass", "bymerge", "balanced", "letters", "digits" or "mnist". The files are
    ``<root>/EMNIST/raw/emnist-<split>-{train,test}-{images-idx3,labels-idx1}-ubyte``, gzipped or not, as in the archive
    ``gzip.zip``. Pictures are turned upright."""

    folder_name = "EMNIST"
    splits = ("byclass", "bymerge", "balanced", "letters", "digits", "mnist")
    mirrors = ("https://biometrics.nist.gov/cs_links/EMNIST/",)
    resources = {"gzip.zip": "58c8d27c78d21e728a6bc7b3cc06412e"}
    _digits = [str(number) for number in range(10)]
    _upper = [chr(code) for code in range(ord("A"), ord("Z") + 1)]
    _lower = [letter.lower() for letter in _upper]
    _merged = set("CIJKLMOPSUVWXYZ")

    def __init__(self, root: str | os.PathLike[str], split: str, train: bool = True, **kwargs: Any) -> None:
        self.split = verify_str_arg(split, "split", self.splits)
        self.classes = self._classes_of(split)
        super().__init__(root, train, **kwargs)
        self.data = self.data.transpose(1, 2).contiguous()  # they were stored lying on their side

    def _names(self, train: bool) -> tuple[str, str]:
        part = "train" if train else "test"
        return f"emnist-{self.split}-{part}-images-idx3-ubyte", f"emnist-{self.split}-{part}-labels-idx1-ubyte"

    def _folder(self, download: bool) -> Path:
        raw = Path(self.raw_folder)
        if not _has_all(raw, self._names(self.train)):
            archive = raw / "gzip.zip"
            if not check_integrity(archive):
                mirrors = (self.source_url.rstrip("/") + "/",) if self.source_url else self.mirrors
                bring("EMNIST", raw, mirrors, self.resources, download)
            extract_archive(archive, raw)
            for packed in (raw / "gzip").glob("*.gz"):
                os.replace(packed, raw / packed.name)
        return raw

    def _classes_of(self, split: str) -> list[str]:
        merged = [letter.lower() for letter in self._upper if letter not in self._merged]
        of_split = {
            "byclass": self._digits + self._upper + self._lower,
            "bymerge": self._digits + self._upper + merged,
            "balanced": self._digits + self._upper + merged,
            "letters": ["N/A", *self._lower],
        }
        return of_split.get(split, self._digits)


def get_int(b: bytes) -> int:
    """The number that big-endian bytes stand for."""
    return int.from_bytes(b, "big")


def read_sn3_pascalvincent_tensor(path: str | os.PathLike[str], strict: bool = True) -> torch.Tensor:
    """The uint8 tensor of an idx file, gzipped or not, of as many dims as it says. A file that is not as long as that
    is always refused."""
    opened = gzip.open(path, "rb") if os.fspath(path).endswith(".gz") else open(path, "rb")
    with opened as file:
        head = file.read(4)
    if len(head) < 4:
        raise DataError(f"{path}: {len(head)} bytes, less than an idx header; the file was cut short")
    return torch.from_numpy(read_idx(path, head[3]).copy())


def read_label_file(path: str | os.PathLike[str]) -> torch.Tensor:
    """The labels of an idx file, int64 (n,)."""
    return torch.from_numpy(read_idx(path, 1).copy()).long()


def read_image_file(path: str | os.PathLike[str]) -> torch.Tensor:
    """The pictures of an idx file, uint8 (n, height, width)."""
    return torch.from_numpy(read_idx(path, 3).copy())


def _read_pair(images_file: Path, labels_file: Path) -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = read_image_file(images_file), read_label_file(labels_file)
    if len(images) != len(labels):
        raise DataError(
            f"{images_file} has {len(images)} pictures, {labels_file.name} {len(labels)} labels; they are not of one "
            f"set"
        )
    return images, labels


def _has_all(folder: Path, files: tuple[str, ...]) -> bool:
    return all((folder / file).exists() or (folder / f"{file}.gz").exists() for file in files)


def _found(folder: Path, file: str) -> Path:
    return folder / file if (folder / file).exists() else folder / f"{file}.gz"
