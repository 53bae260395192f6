"""The loss of a classifier: cross entropy, auxiliary classifiers, weight decay; and how often the network is right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from fastnn.models.model_factory import NetworkFn

AUXILIARY = "AuxLogits"
AUXILIARY_WEIGHT = 0.4


def classification_loss(
    network_fn: NetworkFn, images: Tensor, labels: Tensor, label_smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """The loss that is trained on, and the accuracy of the batch; logits count in float32. Labels may come with a last
    dim of 1."""
    logits, end_points = network_fn(images)
    labels = labels.reshape(-1)
    loss = cross_entropy(logits, labels, label_smoothing)
    auxiliary = _auxiliary(end_points)
    if auxiliary is not None:
        loss = loss + AUXILIARY_WEIGHT * cross_entropy(auxiliary, labels, label_smoothing)
    decay = network_fn.regularization_loss()
    accuracy = (logits.argmax(-1) == labels).float().mean()
    return (loss if decay is None else loss + decay), accuracy


def cross_entropy(logits: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """The mean over the batch; targets are one-hot * (1 - smoothing) + smoothing / classes."""
    return F.cross_entropy(logits.float(), labels, label_smoothing=label_smoothing)


def _auxiliary(end_points: Mapping[str, Any]) -> Tensor | None:
    return end_points.get(AUXILIARY)
