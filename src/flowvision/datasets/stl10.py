"""STL-10: 96 x 96 colour pictures, some with labels and many without."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from flowvision.datasets.utils import bring, extract_archive, verify_str_arg
from flowvision.datasets.vision import VisionDataset, label_at, pixels_at, transformed
from oneflow.engine.core.errors import ArgumentError, DataError

_PICTURE = (3, 96, 96)
_FILES = {
    "train": ("train_X.bin", "train_y.bin"),
    "test": ("test_X.bin", "test_y.bin"),
    "unlabeled": ("unlabeled_X.bin", None),
}


class STL10(VisionDataset):
    """``split`` is "train", "test", "unlabeled" (labels -1) or "train+unlabeled"; ``folds``, 0 to 9, takes one fold of
    the training pictures.

    The files are those of ``stl10_binary.tar.gz``, under ``<root>/stl10_binary``; an archive in ``root`` is unpacked.
    ``data`` is uint8 (n, 3, 96, 96).
    """

    base_folder = "stl10_binary"
    url = "http://ai.stanford.edu/~acoates/stl10/"
    archive = "stl10_binary.tar.gz"
    md5 = "91f7769df0f17e558f3565bffb0c7dfb"
    splits = ("train", "train+unlabeled", "unlabeled", "test")

    def __init__(
        self,
        root: str | os.PathLike[str],
        split: str = "train",
        folds: int | None = None,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        download: bool = False,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.split = verify_str_arg(split, "split", self.splits)
        if folds is not None and (folds not in range(10) or not split.startswith("train")):
            raise ArgumentError(f"folds is from 0 to 9, for the training pictures, got {folds!r} for split {split!r}")
        self._folder = Path(self.root) / self.base_folder
        wanted = [name for part in split.split("+") for name in _FILES[part] if name]
        if not all((self._folder / name).exists() for name in wanted):
            self._unpack(download)
        parts = [self._part(name, folds if name == "train" else None) for name in split.split("+")]
        self.data = np.concatenate([data for data, _ in parts])
        self.labels = np.concatenate([labels for _, labels in parts])
        names = self._folder / "class_names.txt"
        self.classes = names.read_text().split() if names.exists() else []

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        pixels = pixels_at(self.data, index).permute(1, 2, 0)
        target = label_at(self.labels, index)
        return transformed(pixels, self.transform), target if self.target_transform is None else self.target_transform(
            target
        )

    def __len__(self) -> int:
        return len(self.data)

    def extra_repr(self) -> str:
        return f"Split: {self.split}"

    def _unpack(self, download: bool) -> None:
        root = Path(self.root)
        if not (root / self.archive).exists():
            bring("STL10", root, (self.url,), {self.archive: self.md5}, download)
        extract_archive(root / self.archive, root)

    def _part(self, part: str, fold: int | None) -> tuple[np.ndarray, np.ndarray]:
        data_file, labels_file = _FILES[part]
        raw = np.fromfile(self._folder / data_file, np.uint8)
        if raw.size == 0 or raw.size % int(np.prod(_PICTURE)):
            raise DataError(
                f"{self._folder / data_file}: {raw.size} bytes are no multiple of a picture's "
                f"{int(np.prod(_PICTURE))}; the file was cut short"
            )
        data = raw.reshape(-1, *_PICTURE).transpose(0, 1, 3, 2)  # columns were stored one after the other
        labels = (
            np.full(len(data), -1, np.int64)
            if labels_file is None
            else np.fromfile(self._folder / labels_file, np.uint8).astype(np.int64) - 1
        )
        if len(labels) != len(data):
            raise DataError(f"{self._folder}: {data_file} has {len(data)} pictures, {labels_file} {len(labels)} labels")
        if fold is None:
            return data, labels
        rows = np.array((self._folder / "fold_indices.txt").read_text().splitlines()[fold].split(), np.int64)
        return data[rows], labels[rows]
