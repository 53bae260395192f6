"""Half a cosine from the rate to its smallest, with restarts."""

from __future__ import annotations

import math
from typing import Any

from flowvision.scheduler.scheduler import NoiseRange
from flowvision.scheduler.warmup import WarmupScheduler, cycle, cycle_length


class CosineLRScheduler(WarmupScheduler):
    """Each cycle is ``t_mul`` times as long as the last and begins ``decay_rate`` times as high; after ``cycle_limit``
    cycles (0: never) it stays at ``lr_min``."""

    def __init__(
        self,
        optimizer: Any,
        t_initial: int,
        t_mul: float = 1.0,
        lr_min: float = 0.0,
        decay_rate: float = 1.0,
        warmup_t: int = 0,
        warmup_lr_init: float = 0,
        warmup_prefix: bool = False,
        cycle_limit: int = 0,
        t_in_epochs: bool = True,
        noise_range_t: NoiseRange = None,
        noise_pct: float = 0.67,
        noise_std: float = 1.0,
        noise_seed: int = 42,
        initialize: bool = True,
    ) -> None:
        self.t_initial, self.t_mul, self.lr_min, self.decay_rate, self.cycle_limit = (
            t_initial,
            t_mul,
            lr_min,
            decay_rate,
            cycle_limit,
        )
        noise = (noise_range_t, noise_pct, noise_std, noise_seed)
        super().__init__(optimizer, warmup_t, warmup_lr_init, t_in_epochs, *noise, initialize, warmup_prefix)

    def rates(self, t: float) -> list[float]:
        number, length, now = cycle(t, self.t_initial, self.t_mul)
        if self.cycle_limit and number >= self.cycle_limit:
            return [self.lr_min for _ in self.base_values]
        scale = self.decay_rate**number
        low = self.lr_min * scale
        return [
            low + 0.5 * (value * scale - low) * (1 + math.cos(math.pi * now / length)) for value in self.base_values
        ]

    def get_cycle_length(self, cycles: int = 0) -> int:
        return cycle_length(self.t_initial, self.t_mul, cycles or self.cycle_limit)
