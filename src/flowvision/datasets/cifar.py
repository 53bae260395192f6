"""CIFAR-10 and CIFAR-100: 32 x 32 colour pictures, in the Python version of the sets."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from flowvision.datasets.utils import bring, extract_archive
from flowvision.datasets.vision import VisionDataset, label_at, pixels_at, transformed
from oneflow.engine.core.errors import DataError

_PIXELS = (3, 32, 32)
# All that these files name; a pickle could otherwise call anything.
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


class CIFAR10(VisionDataset):
    """50000 pictures for training and 10000 for test, in ten classes: (PIL picture, or what ``transform`` makes of it;
    label).

    The files are those of ``cifar-10-python.tar.gz``, under ``<root>/cifar-10-batches-py``; an archive in ``root`` is
    unpacked. ``data`` is uint8 (n, 32, 32, 3), ``targets`` a list.
    """

    base_folder = "cifar-10-batches-py"
    url = "https://www.cs.toronto.edu/~kriz/"
    archive = "cifar-10-python.tar.gz"
    md5 = "c58f30108f718f92721af3b95e74349a"
    train_list: tuple[str, ...] = tuple(f"data_batch_{number}" for number in range(1, 6))
    test_list: tuple[str, ...] = ("test_batch",)
    meta = ("batches.meta", "label_names")
    labels_key = "labels"

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
        folder = Path(self.root) / self.base_folder
        files = self.train_list if train else self.test_list
        if not all((folder / file).exists() for file in (*files, self.meta[0])):
            self._unpack(download, source_url)
        batches = [_batch(folder / file, self.labels_key) for file in files]
        pixels = np.concatenate([data for data, _ in batches]).reshape(-1, *_PIXELS).transpose(0, 2, 3, 1)
        self.data: np.ndarray = np.ascontiguousarray(pixels)
        self.targets = [label for _, labels in batches for label in labels]
        self.classes: list[str] = [str(name) for name in _unpickled(folder / self.meta[0])[self.meta[1]]]
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        picture = transformed(pixels_at(self.data, index), self.transform)
        target = label_at(self.targets, index)
        return picture, target if self.target_transform is None else self.target_transform(target)

    def __len__(self) -> int:
        return len(self.data)

    def extra_repr(self) -> str:
        return f"Split: {'Train' if self.train else 'Test'}"

    def _unpack(self, download: bool, source_url: str | None) -> None:
        root = Path(self.root)
        if not (root / self.archive).exists():
            mirror = self.url if source_url is None else source_url.removesuffix(self.archive)
            bring(self.base_folder, root, (mirror,), {self.archive: self.md5}, download)
        extract_archive(root / self.archive, root)


class CIFAR100(CIFAR10):
    """50000 pictures for training and 10000 for test, in a hundred classes, of ``cifar-100-python.tar.gz``; see
    ``CIFAR10``."""

    base_folder = "cifar-100-python"
    archive = "cifar-100-python.tar.gz"
    md5 = "eb9058c3a382ffc7106e4002c42a8d85"
    train_list = ("train",)
    test_list = ("test",)
    meta = ("meta", "fine_label_names")
    labels_key = "fine_labels"


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(
                f"it names {module}.{name}, which no batch of CIFAR does; nothing was executed"
            )
        return super().find_class(module, name)


def _unpickled(path: Path) -> dict[str, Any]:
    try:
        found = _Reader(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    except Exception as error:  # a damaged pickle fails in as many ways as there are codes
        raise DataError(f"{path} is damaged, or no file of CIFAR: {error}") from None
    if not isinstance(found, dict):
        raise DataError(f"{path} is no file of CIFAR: it holds {type(found).__name__}")
    return {
        key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in found.items()
    }  # bytes: written by Python 3


def _batch(path: Path, labels_key: str) -> tuple[np.ndarray, list[int]]:
    found = _unpickled(path)
    data, labels = found.get("data"), found.get(labels_key)
    size = int(np.prod(_PIXELS))
    if (
        not isinstance(data, np.ndarray)
        or data.ndim != 2
        or data.shape[1] != size
        or not isinstance(labels, list)
        or len(labels) != len(data)
    ):
        raise DataError(
            f"{path} is no batch of CIFAR: 'data' is uint8 (n, {size}) and {labels_key!r} a list of n labels"
        )
    return data, labels
