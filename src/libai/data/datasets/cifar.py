"""CIFAR-10 and CIFAR-100 as Instances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flowvision import datasets
from libai.data.datasets.pictures import picture_instance
from libai.data.structures import Instance


class CIFAR10Dataset(datasets.CIFAR10):
    """``flowvision.datasets.CIFAR10`` whose samples are Instances with ``images`` and ``labels``."""

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


class CIFAR100Dataset(CIFAR10Dataset, datasets.CIFAR100):
    """``flowvision.datasets.CIFAR100`` whose samples are Instances with ``images`` and ``labels``."""

    base_folder, archive, md5 = datasets.CIFAR100.base_folder, datasets.CIFAR100.archive, datasets.CIFAR100.md5
    train_list, test_list = datasets.CIFAR100.train_list, datasets.CIFAR100.test_list
    meta, labels_key = datasets.CIFAR100.meta, datasets.CIFAR100.labels_key
