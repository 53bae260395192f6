"""Mixed precision for eager training."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch

from libai.utils import distributed as dist
from oneflow import nn

_INTERVAL = 2000  # finite steps after which the scale doubles


class MixedPrecision:
    """float16 with a loss scale on GPUs. It has no effect when disabled or on a CPU, where everything is float32."""

    def __init__(self, model: nn.Module, is_enabled: bool) -> None:
        self.is_active = is_enabled and any(_is_on_gpu(parameter) for parameter in model.parameters())
        self.scale = 65536.0 * dist.get_data_parallel_size()
        self.good_steps = 0

    def autocast(self) -> Any:
        """Returns the context of the forward pass."""
        return torch.autocast("cuda", torch.float16) if self.is_active else nullcontext()

    def scaled(self, loss: Any) -> Any:
        """Returns the loss times the scale."""
        return loss * self.scale if self.is_active else loss

    def unscale(self, optimizer: Any) -> bool:
        """Divides the gradients by the scale.

        Returns:
            Whether all gradients are finite. If not, the caller must skip this step, and the scale is halved.
        """
        if not self.is_active:
            return True
        grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        is_finite = all(bool(grad.isfinite().all()) for grad in grads)
        for grad in grads:
            grad.div_(self.scale)
        self.good_steps = self.good_steps + 1 if is_finite else 0
        if not is_finite:
            self.scale /= 2
        elif self.good_steps == _INTERVAL:
            self.scale, self.good_steps = self.scale * 2, 0
        return is_finite

    def state_dict(self) -> dict[str, Any]:
        """Returns the scale and the number of steps since it changed."""
        return {"scale": self.scale, "good_steps": self.good_steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what ``state_dict`` returned."""
        self.scale, self.good_steps = state["scale"], state["good_steps"]


def _is_on_gpu(parameter: Any) -> bool:
    return (parameter.placement.type if parameter.is_global else parameter.device.type) == "cuda"
