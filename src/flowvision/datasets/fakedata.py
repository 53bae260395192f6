"""Pictures of noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from flowvision.datasets.vision import VisionDataset, transformed


class FakeData(VisionDataset):
    """``size`` pictures of noise, ``image_size`` being (channels, height, width), with labels below ``num_classes``. A
    picture is the same whenever it is asked for; ``random_offset`` gives others."""

    def __init__(
        self,
        size: int = 1000,
        image_size: Sequence[int] = (3, 224, 224),
        num_classes: int = 10,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        random_offset: int = 0,
    ) -> None:
        super().__init__("", transform=transform, target_transform=target_transform)
        self.size, self.image_size, self.num_classes, self.random_offset = (
            size,
            tuple(image_size),
            num_classes,
            random_offset,
        )

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if not 0 <= index < self.size:
            raise IndexError(f"FakeData has {self.size} pictures, got index {index}")
        generator = torch.Generator().manual_seed(index + self.random_offset)
        channels, height, width = self.image_size
        pixels = torch.randint(256, (height, width, channels), generator=generator, dtype=torch.uint8)
        target = int(torch.randint(self.num_classes, (), generator=generator))
        picture = transformed(pixels[:, :, 0] if channels == 1 else pixels, self.transform)
        return picture, target if self.target_transform is None else self.target_transform(target)

    def __len__(self) -> int:
        return self.size
