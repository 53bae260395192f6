"""A straight line from the rate to a part of it."""

from __future__ import annotations

from typing import Any

from flowvision.scheduler.scheduler import NoiseRange
from flowvision.scheduler.warmup import WarmupScheduler


class LinearLRScheduler(WarmupScheduler):
    """At ``t_initial``, the warm-up included, the rate is ``lr_min_rate`` of what it was."""

    def __init__(
        self,
        optimizer: Any,
        t_initial: int,
        lr_min_rate: float,
        warmup_t: int = 0,
        warmup_lr_init: float = 0.0,
        t_in_epochs: bool = True,
        noise_range_t: NoiseRange = None,
        noise_pct: float = 0.67,
        noise_std: float = 1.0,
        noise_seed: int = 42,
        initialize: bool = True,
    ) -> None:
        self.t_initial, self.lr_min_rate = t_initial, lr_min_rate
        super().__init__(
            optimizer,
            warmup_t,
            warmup_lr_init,
            t_in_epochs,
            noise_range_t,
            noise_pct,
            noise_std,
            noise_seed,
            initialize,
        )

    def rates(self, t: float) -> list[float]:
        done = (t - self.warmup_t) / (self.t_initial - self.warmup_t)
        return [value - value * (1 - self.lr_min_rate) * done for value in self.base_values]
