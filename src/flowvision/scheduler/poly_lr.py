"""A power of the time that is left, with restarts."""

from __future__ import annotations

from typing import Any

from flowvision.scheduler.scheduler import NoiseRange
from flowvision.scheduler.warmup import WarmupScheduler, cycle, cycle_length


class PolyLRScheduler(WarmupScheduler):
    """lr_min + (lr - lr_min) * (1 - (t / T)^k_decay)^power; cycles as in ``CosineLRScheduler``, at ``lr_min`` after
    ``cycle_limit`` of them (0: never)."""

    def __init__(
        self,
        optimizer: Any,
        t_initial: int,
        power: float = 0.5,
        lr_min: float = 0.0,
        cycle_mul: float = 1.0,
        cycle_decay: float = 1.0,
        cycle_limit: int = 1,
        warmup_t: int = 0,
        warmup_lr_init: float = 0,
        warmup_prefix: bool = False,
        t_in_epochs: bool = True,
        noise_range_t: NoiseRange = None,
        noise_pct: float = 0.67,
        noise_std: float = 1.0,
        noise_seed: int = 42,
        k_decay: float = 1.0,
        initialize: bool = True,
    ) -> None:
        self.t_initial, self.power, self.lr_min, self.k_decay = t_initial, power, lr_min, k_decay
        self.cycle_mul, self.cycle_decay, self.cycle_limit = cycle_mul, cycle_decay, cycle_limit
        noise = (noise_range_t, noise_pct, noise_std, noise_seed)
        super().__init__(optimizer, warmup_t, warmup_lr_init, t_in_epochs, *noise, initialize, warmup_prefix)

    def rates(self, t: float) -> list[float]:
        number, length, now = cycle(t, self.t_initial, self.cycle_mul)
        if self.cycle_limit and number >= self.cycle_limit:
            return [self.lr_min for _ in self.base_values]
        left = (1 - now**self.k_decay / length**self.k_decay) ** self.power
        return [self.lr_min + (value * self.cycle_decay**number - self.lr_min) * left for value in self.base_values]

    def get_cycle_length(self, cycles: int = 0) -> int:
        return cycle_length(self.t_initial, self.cycle_mul, cycles or self.cycle_limit)
