"""``tf.losses``, as far as FastNN's own loss uses it."""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch import Tensor

from fastnn.tf.absent import absent

__all__ = ["sparse_softmax_cross_entropy"]


def sparse_softmax_cross_entropy(labels: Any, logits: Tensor, weights: float = 1.0, scope: str | None = None) -> Tensor:
    """The mean over the batch, times ``weights``; labels may have a last dim of 1."""
    return weights * torch.nn.functional.cross_entropy(
        logits, torch.as_tensor(labels).reshape(logits.shape[:-1]).long()
    )


def __getattr__(name: str) -> NoReturn:
    if name.startswith("__"):
        raise AttributeError(name)
    raise absent(f"tf.losses.{name}", __all__)
