"""A model that follows another slowly."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class ModelEmaV2(nn.Module):
    """``module`` is a copy of a model in eval mode whose parameters and buffers are, after each ``update``, decay *
    theirs + (1 - decay) * the model's. It lies on ``device`` where one is given."""

    def __init__(self, model: nn.Module, decay: float = 0.9999, device: Any = None) -> None:
        super().__init__()
        self.module = copy.deepcopy(model).eval()
        self.decay, self.device = decay, device
        if device is not None:
            self.module.to(device=device)

    @torch.no_grad()
    def _update(self, model: nn.Module, change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        for own, new in zip(self.module.state_dict().values(), model.state_dict().values()):
            own.copy_(change(own, new.to(own.device)))

    def update(self, model: nn.Module) -> None:
        """Follows the model by a step; whole numbers, such as counts of batches, are taken over."""
        self._update(
            model, lambda own, new: self.decay * own + (1.0 - self.decay) * new if own.is_floating_point() else new
        )

    def set(self, model: nn.Module) -> None:
        """Becomes equal to the model."""
        self._update(model, lambda own, new: new)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What ``module`` gives."""
        return self.module(*args, **kwargs)
