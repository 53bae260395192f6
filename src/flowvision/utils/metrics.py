"""Means over batches, and how often the right class is among the likeliest."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class AverageMeter:
    """The last value and the mean of all, each counted ``n`` times."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forgets everything."""
        self.val = self.avg = self.sum = 0.0
        self.count = 0

    def update(self, val: float, n: int = 1) -> None:
        """Adds a value that stands for ``n`` samples."""
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


def accuracy(output: Tensor, target: Tensor, topk: Sequence[int] = (1,)) -> list[Tensor]:
    """The share, in percent, of rows whose ``target`` is among the k highest, for every k; k is at most the number of
    classes."""
    classes = output.shape[1]
    _, order = output.topk(min(max(topk), classes), dim=1)
    hits = order.t() == target.reshape(1, -1)
    return (
        [hits[: min(k, classes)].reshape(-1).float().sum() * (100.0 / len(target)) for k in topk]
        if len(target)
        else [torch.zeros(()) for _ in topk]
    )
