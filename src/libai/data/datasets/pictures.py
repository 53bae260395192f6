"""Pictures and labels as Instances, and many of them at once."""

from __future__ import annotations

from typing import Any

import torch

from flowvision.datasets.vision import as_floats
from flowvision.transforms import Compose, Normalize, ToTensor
from libai.data.structures import DistTensorData, Instance
from oneflow.core.errors import DTypeError


def picture_instance(picture: Any, label: int) -> Instance:
    """One sample: ``images`` and ``labels``, the latter for the last stage."""
    if not isinstance(picture, torch.Tensor):
        raise DTypeError(f"the transform of a data set of libai gives a tensor, got {type(picture).__name__}; end it with ToTensor()")
    return Instance(images=DistTensorData(picture), labels=DistTensorData(torch.tensor(label, dtype=torch.long), placement_idx=-1))


def batch_instance(pixels: torch.Tensor, labels: torch.Tensor, transform: Any) -> Any:
    """A batch of uint8 pixels (n, height, width[, channels]), made at once; NotImplemented where ``transform`` is not ToTensor, alone or with Normalize."""
    steps = list(transform.transforms) if type(transform) is Compose else [transform]
    if not steps or type(steps[0]) is not ToTensor or any(type(step) is not Normalize for step in steps[1:]):
        return NotImplemented
    images = as_floats(pixels if pixels.ndim == 4 else pixels.unsqueeze(-1))
    for step in steps[1:]:
        images = step(images)
    return Instance(images=DistTensorData(images), labels=DistTensorData(labels, placement_idx=-1))
