"""What the data sets have in common."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from PIL import Image

from flowvision.transforms import Compose, ToTensor
from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.data.at_once import BatchIndex, BatchNumber
from oneflow.utils.data import Dataset

Transform = Callable[[Any], Any]


class VisionDataset(Dataset):
    """Pictures with targets under a folder ``root``.

    ``transform`` is applied to a picture, ``target_transform`` to its target; ``transforms`` to both, and excludes the
    other two.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        transforms: Callable[..., Any] | None = None,
        transform: Transform | None = None,
        target_transform: Transform | None = None,
    ) -> None:
        if transforms is not None and (transform is not None or target_transform is not None):
            raise ArgumentError(
                "give transforms, which takes picture and target, or transform and target_transform, not both"
            )
        self.root = os.path.expanduser(os.fspath(root))
        self.transform = transform
        self.target_transform = target_transform
        has_own = transform is not None or target_transform is not None
        self.transforms = StandardTransform(transform, target_transform) if has_own else transforms

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has to define __getitem__")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} has to define __len__")

    def __repr__(self) -> str:
        lines = [
            f"Dataset {type(self).__name__}",
            f"    Number of datapoints: {len(self)}",
            f"    Root location: {self.root}",
        ]
        lines += [f"    {line}" for line in self.extra_repr().splitlines()]
        lines += [f"    {line}" for line in repr(self.transforms).splitlines()] if self.transforms is not None else []
        return "\n".join(lines)

    def extra_repr(self) -> str:
        """More lines for ``repr``."""
        return ""


class StandardTransform:
    """A transform for pictures and one for targets, as one for both."""

    def __init__(self, transform: Transform | None = None, target_transform: Transform | None = None) -> None:
        self.transform, self.target_transform = transform, target_transform

    def __call__(self, input: Any, target: Any) -> tuple[Any, Any]:
        return input if self.transform is None else self.transform(
            input
        ), target if self.target_transform is None else self.target_transform(target)

    def __repr__(self) -> str:
        parts = [
            f"{name}: {transform}"
            for name, transform in (("Transform", self.transform), ("Target transform", self.target_transform))
            if transform is not None
        ]
        return "\n".join(["StandardTransform", *parts])


def pixels_at(pictures: Any, index: Any) -> torch.Tensor:
    """The pixels of a picture among those of a tensor or an array; ``index`` may stand for a batch."""
    if type(index) is BatchIndex:
        return index.of(pictures)
    return pictures[index] if isinstance(pictures, torch.Tensor) else torch.from_numpy(pictures[index])


def label_at(labels: np.ndarray | list[int], index: Any) -> Any:
    """A label; ``index`` may stand for a batch."""
    return BatchNumber(index.of(labels)) if type(index) is BatchIndex else int(labels[index])


def transformed(pixels: torch.Tensor, transform: Transform | None) -> Any:
    """``transform`` of the picture of these pixels, uint8 (height, width) or (height, width, channels).

    Where the transform begins with ToTensor its result is made from the pixels themselves: the same numbers in a fifth
    of the time.
    """
    if type(transform) is ToTensor:
        return as_floats(pixels)
    if type(transform) is Compose and transform.transforms and type(transform.transforms[0]) is ToTensor:
        made: Any = as_floats(pixels)
        for later in transform.transforms[1:]:
            made = later(made)
        return made
    picture = Image.fromarray(pixels.contiguous().numpy())
    return picture if transform is None else transform(picture)


def as_floats(pixels: torch.Tensor) -> torch.Tensor:
    """float32 from 0 to 1: (channels, height, width) of one picture's pixels, (n, channels, height, width) of several
    pictures'."""
    if pixels.ndim == 2:
        return pixels.unsqueeze(0).to(torch.float32).div_(255)
    return pixels.movedim(-1, -3).to(torch.float32, memory_format=torch.contiguous_format).div_(255)
