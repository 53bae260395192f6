"""``flow.experimental.Tensor``: the constructor of tensors as it was in the releases of 2021."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


class _AsTensors(type):
    """Every tensor is an instance, however it was made."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Tensor)


class Tensor(metaclass=_AsTensors):
    """``Tensor(2, 3)`` has that shape and no values yet; ``Tensor(array)`` and ``Tensor([1.0, 2.0])`` have these, as
    float32 if no ``dtype`` is given."""

    def __new__(  # type: ignore[misc]
        cls, *args: Any, dtype: torch.dtype | None = None, device: Any = None, requires_grad: bool = False
    ) -> torch.Tensor:
        kind = torch.float32 if dtype is None else dtype
        if (
            len(args) == 1
            and isinstance(args[0], (np.ndarray, torch.Tensor, list, tuple))
            and not isinstance(args[0], torch.Size)
        ):
            made = torch.as_tensor(args[0]).to(device=device, dtype=kind, copy=True)
        else:
            made = torch.empty(*args, dtype=kind, device=device)
        return made.requires_grad_(requires_grad)
