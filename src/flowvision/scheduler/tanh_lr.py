"""A hyperbolic tangent from the rate to its smallest, with restarts."""

from __future__ import annotations

import math
from typing import Any

from flowvision.scheduler.scheduler import NoiseRange
from flowvision.scheduler.warmup import WarmupScheduler, cycle, cycle_length
from oneflow.engine.core.errors import ArgumentError


class TanhLRScheduler(WarmupScheduler):
    """lr_min + (lr - lr_min) / 2 * (1 - tanh(lb (1 - t/T) + ub t/T)); cycles as in ``CosineLRScheduler``. A warm-up
    rises to the curve, not to the rate."""

    def __init__(
        self,
        optimizer: Any,
        t_initial: int,
        lb: float = -7.0,
        ub: float = 3.0,
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
        initialize: bool = True,
    ) -> None:
        if not lb < ub:
            raise ArgumentError(f"lb should be below ub, got {lb} and {ub}")
        self.t_initial, self.lb, self.ub, self.lr_min = t_initial, lb, ub, lr_min
        self.cycle_mul, self.cycle_decay, self.cycle_limit = cycle_mul, cycle_decay, cycle_limit
        noise = (noise_range_t, noise_pct, noise_std, noise_seed)
        super().__init__(
            optimizer, warmup_t, warmup_lr_init, t_in_epochs, *noise, initialize, warmup_prefix, rises_to_schedule=True
        )

    def rates(self, t: float) -> list[float]:
        number, length, now = cycle(t, self.t_initial, self.cycle_mul)
        if self.cycle_limit and number >= self.cycle_limit:
            return [self.lr_min for _ in self.base_values]
        done, scale = now / length, self.cycle_decay**number
        left = 0.5 * (1 - math.tanh(self.lb * (1 - done) + self.ub * done))
        return [self.lr_min + (value * scale - self.lr_min) * left for value in self.base_values]

    def get_cycle_length(self, cycles: int = 0) -> int:
        return cycle_length(self.t_initial, self.cycle_mul, cycles or self.cycle_limit)
