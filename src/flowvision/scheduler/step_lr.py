"""A rate that falls in even steps."""

from __future__ import annotations

from typing import Any

from flowvision.scheduler.scheduler import NoiseRange
from flowvision.scheduler.warmup import WarmupScheduler


class StepLRScheduler(WarmupScheduler):
    """Every ``decay_t`` the rate becomes ``decay_rate`` of itself."""

    def __init__(
        self,
        optimizer: Any,
        decay_t: float,
        decay_rate: float = 1.0,
        warmup_t: int = 0,
        warmup_lr_init: float = 0,
        t_in_epochs: bool = True,
        noise_range_t: NoiseRange = None,
        noise_pct: float = 0.67,
        noise_std: float = 1.0,
        noise_seed: int = 42,
        initialize: bool = True,
    ) -> None:
        self.decay_t, self.decay_rate = decay_t, decay_rate
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
        return [value * self.decay_rate ** (t // self.decay_t) for value in self.base_values]
