"""Loss scaling: what a graph is given by ``set_grad_scaler``, and what eager programs call around ``backward``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.number import flag, number, whole
from oneflow.engine.global_tensor.constants import local_constants
from oneflow.optimizer.loss_scale import LossScale


class GradScaler(torch.amp.GradScaler):
    """A scale of the loss that falls when gradients overflow, and that update is left out, and grows after
    ``growth_interval`` good ones.

    ``graph.set_grad_scaler(scaler)`` hands it to a graph, which does the rest. Eager programs call ``scale``,
    ``unscale_``, ``step`` and ``update`` as with ``torch.amp.GradScaler``, which it is. It falls by what it grows by:
    ``backoff_factor`` is 1 / ``growth_factor``.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        growth = number("growth_factor", growth_factor, above=1)
        backoff = number("backoff_factor", backoff_factor, above=0, below=1)
        if backoff != 1.0 / growth:
            raise ArgumentError(f"backoff_factor is 1 / growth_factor, so {1.0 / growth} for {growth}; got {backoff}")
        scale, interval = number("init_scale", init_scale, above=0), whole("growth_interval", growth_interval, above=0)
        super().__init__(
            "cuda" if torch.cuda.is_available() else "cpu", scale, growth, backoff, interval, flag("enabled", enabled)
        )

    def scale(self, outputs: Any) -> Any:
        """Multiplies losses by the scale; they may be global tensors."""
        with local_constants():  # the scale is equal on all ranks
            return super().scale(outputs)

    def loss_scale(self) -> LossScale:
        """The scale as a graph begins with it and goes on; none at all if it is not enabled."""
        if not self.is_enabled():
            return LossScale()
        return LossScale(self.get_scale(), self.get_growth_interval(), self.get_growth_factor())


class StaticGradScaler:
    """A loss that is multiplied by a fixed number, and gradients that are divided by it: in a graph, or by ``scale``
    and ``step``. Nothing is looked at for overflow."""

    def __init__(self, scale_factor: float) -> None:
        self.scale_factor = number("scale_factor", scale_factor, above=0)
        self._unscaled: set[int] = set()

    def loss_scale(self) -> LossScale:
        """The scale as a graph takes it."""
        return LossScale(self.scale_factor)

    def get_scale(self) -> float:
        return self.scale_factor

    def scale(self, outputs: Any) -> Any:
        """A loss times the factor; of lists and tuples each element."""
        if isinstance(outputs, torch.Tensor):
            return outputs * self.scale_factor
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(self.scale(value) for value in outputs)
        raise ArgumentError(f"scale() takes a tensor, or a list or tuple of them, got {type(outputs).__name__}")

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """Divides the gradients of an optimizer by the factor: before clipping, and once in a step."""
        if id(optimizer) in self._unscaled:
            raise ArgumentError(
                "unscale_() was called for this optimizer since its last step(); gradients are divided once"
            )
        self._unscaled.add(id(optimizer))
        with torch.no_grad():
            for group in optimizer.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        p.grad.div_(self.scale_factor)

    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        """``optimizer.step``, with gradients that were divided before, or are now."""
        if id(optimizer) not in self._unscaled:
            self.unscale_(optimizer)
        self._unscaled.discard(id(optimizer))
        return optimizer.step(*args, **kwargs)

    def update(self) -> None:
        """Nothing: the factor stays."""

    def state_dict(self) -> dict[str, float]:
        return {"scale": self.scale_factor}

    def load_state_dict(self, state_dict: Mapping[str, float]) -> None:
        self.scale_factor = number("scale", state_dict["scale"], above=0)
