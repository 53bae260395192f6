"""MNIST as Instances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flowvision import datasets
from libai.data.datasets.pictures import picture_instance
from libai.data.structures import Instance


class MNISTDataset(datasets.MNIST):
    """``flowvision.datasets.MNIST`` whose samples are Instances with ``images`` and ``labels``."""

    def __init__(
        self,
        root: str,
        train: bool = True,
        transform: Callable[[Any], Any] | None = None,
        download: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(root=root, train=train, transform=transform, download=download, **kwargs)

    def __getitem__(self, index: int) -> Instance:  # type: ignore[override]
        return picture_instance(*super().__getitem__(index))
