"""SVHN: house numbers, 32 x 32 colour pictures."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from flowvision.datasets.matlab import load_arrays
from flowvision.datasets.utils import bring, verify_str_arg
from flowvision.datasets.vision import VisionDataset, label_at, pixels_at, transformed
from oneflow.engine.core.errors import DataError

_MD5 = {
    "train": "e26dedcc434d2e4c54c9b2d4a06d8373",
    "test": "eb5a983be6a315427106f1b164d9cef3",
    "extra": "a93ce644f1a588dc4d68dda5feec44a7",
}


class SVHN(VisionDataset):
    """Digits of house numbers: (PIL picture, or what ``transform`` makes of it; label, 0 to 9). ``split`` is "train",
    "test" or "extra".

    The file is ``<root>/<split>_32x32.mat``. ``data`` is uint8 (n, 3, 32, 32), ``labels`` int64.
    """

    url = "http://ufldl.stanford.edu/housenumbers/"

    def __init__(
        self,
        root: str | os.PathLike[str],
        split: str = "train",
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        download: bool = False,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.split = verify_str_arg(split, "split", _MD5)
        file = Path(self.root) / f"{split}_32x32.mat"
        if not file.exists():
            bring("SVHN", file.parent, (self.url,), {file.name: _MD5[split]}, download)
        arrays = load_arrays(file)
        if (
            "X" not in arrays
            or "y" not in arrays
            or arrays["X"].shape[:3] != (32, 32, 3)
            or arrays["X"].shape[3] != arrays["y"].size
        ):
            raise DataError(f"{file} is no file of SVHN: X is (32, 32, 3, n) and y has n labels")
        self._pixels = np.ascontiguousarray(arrays["X"].transpose(3, 0, 1, 2))
        self.labels = arrays["y"].reshape(-1).astype(np.int64) % 10  # a nought is stored as 10

    @property
    def data(self) -> np.ndarray:
        """The pictures, uint8 (n, 3, 32, 32)."""
        return self._pixels.transpose(0, 3, 1, 2)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        picture = transformed(pixels_at(self._pixels, index), self.transform)
        target = label_at(self.labels, index)
        return picture, target if self.target_transform is None else self.target_transform(target)

    def __len__(self) -> int:
        return len(self._pixels)

    def extra_repr(self) -> str:
        return f"Split: {self.split}"
