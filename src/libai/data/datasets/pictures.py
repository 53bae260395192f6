"""Pictures and labels as Instances."""

from __future__ import annotations

from typing import Any

import torch

from libai.data.structures import DistTensorData, Instance
from oneflow.engine.core.errors import DTypeError


def picture_instance(picture: Any, label: int) -> Instance:
    """One sample: ``images`` and ``labels``, the latter for the last stage."""
    if not isinstance(picture, torch.Tensor):
        raise DTypeError(
            f"the transform of a data set of libai gives a tensor, got {type(picture).__name__}; end it with ToTensor()"
        )
    return Instance(
        images=DistTensorData(picture), labels=DistTensorData(torch.tensor(label, dtype=torch.long), placement_idx=-1)
    )
