"""RandomErasing: boxes of a tensor replaced. It draws from Python's ``random``, pixels from torch's generator."""

from __future__ import annotations

import math
import random
from typing import Any

import torch
from torch import Tensor

from oneflow.engine.core.errors import ArgumentError


class RandomErasing:
    """Boxes of pictures (channels, height, width), or of each of a batch, replaced in place with probability
    ``probability``.

    A box has ``min_area`` to ``max_area`` of the picture and an aspect of ``min_aspect`` to ``max_aspect``, by default
    its inverse; there are ``min_count`` to ``max_count`` of them, which share the area. ``mode`` is "const" (zeros),
    "rand" (one colour) or "pixel" (noise). The first of ``num_splits`` parts of a batch is left alone. Tensors stay
    where they are; ``device`` is not looked at.
    """

    def __init__(
        self,
        probability: float = 0.5,
        min_area: float = 0.02,
        max_area: float = 1 / 3,
        min_aspect: float = 0.3,
        max_aspect: float | None = None,
        mode: str = "const",
        min_count: int = 1,
        max_count: int | None = None,
        num_splits: int = 0,
        device: Any = None,
    ) -> None:
        if mode not in ("const", "rand", "pixel"):
            raise ArgumentError(f"mode is 'const', 'rand' or 'pixel', got {mode!r}")
        self.probability, self.min_area, self.max_area, self.mode = probability, min_area, max_area, mode
        self.log_aspect = (math.log(min_aspect), math.log(max_aspect or 1 / min_aspect))
        self.min_count, self.max_count, self.num_splits = min_count, max_count or min_count, num_splits

    def __call__(self, input: Tensor) -> Tensor:
        if input.ndim == 3:
            self._erase(input)
        else:
            first = len(input) // self.num_splits if self.num_splits > 1 else 0
            for picture in input[first:]:
                self._erase(picture)
        return input

    def _erase(self, picture: Tensor) -> None:
        if random.random() > self.probability:
            return
        channels, height, width = picture.shape
        count = self.min_count if self.min_count == self.max_count else random.randint(self.min_count, self.max_count)
        for _ in range(count):
            for _ in range(10):
                area = random.uniform(self.min_area, self.max_area) * height * width / count
                aspect = math.exp(random.uniform(*self.log_aspect))
                h, w = int(round(math.sqrt(area * aspect))), int(round(math.sqrt(area / aspect)))
                if w < width and h < height:
                    top, left = random.randint(0, height - h), random.randint(0, width - w)
                    picture[:, top : top + h, left : left + w] = self._pixels(channels, h, w).to(picture)
                    break

    def _pixels(self, channels: int, height: int, width: int) -> Tensor:
        if self.mode == "pixel":
            return torch.randn(channels, height, width)
        return torch.randn(channels, 1, 1) if self.mode == "rand" else torch.zeros(channels, 1, 1)
