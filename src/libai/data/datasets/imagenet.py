"""ImageNet as Instances."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from flowvision import datasets
from libai.data.datasets.pictures import picture_instance
from libai.data.structures import Instance


class ImageNetDataset(datasets.ImageFolder):
    """The pictures ``<root>/train/<class>/*`` or ``<root>/val/<class>/*`` as Instances with ``images`` and
    ``labels``."""

    def __init__(
        self, root: str, train: bool = True, transform: Callable[[Any], Any] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(root=os.path.join(root, "train" if train else "val"), transform=transform, **kwargs)

    def __getitem__(self, index: int) -> Instance:  # type: ignore[override]
        return picture_instance(*super().__getitem__(index))
