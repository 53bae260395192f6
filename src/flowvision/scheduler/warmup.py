"""What every schedule of learning rates has: a linear warm-up, and epochs or updates for its time."""

from __future__ import annotations

import math
from typing import Any

from flowvision.scheduler.scheduler import NoiseRange, Scheduler


class WarmupScheduler(Scheduler):
    """``rates(t)`` gives the rates after the warm-up; before, they rise linearly from ``warmup_lr_init`` for
    ``warmup_t``."""

    def __init__(
        self,
        optimizer: Any,
        warmup_t: int,
        warmup_lr_init: float,
        t_in_epochs: bool,
        noise_range_t: NoiseRange,
        noise_pct: float,
        noise_std: float,
        noise_seed: int,
        initialize: bool = True,
        warmup_prefix: bool = False,
        rises_to_schedule: bool = False,
    ) -> None:
        super().__init__(optimizer, "lr", noise_range_t, "normal", noise_pct, noise_std, noise_seed, initialize)
        self.warmup_t, self.warmup_lr_init, self.warmup_prefix, self.t_in_epochs = (
            warmup_t,
            warmup_lr_init,
            warmup_prefix,
            t_in_epochs,
        )
        self.warmup_steps = [1.0] * len(self.base_values)
        if warmup_t:
            ends = self.rates(warmup_t) if rises_to_schedule and not warmup_prefix else self.base_values
            self.warmup_steps = [(end - warmup_lr_init) / warmup_t for end in ends]
            self.update_groups(warmup_lr_init)

    def rates(self, t: float) -> list[float]:
        """The rate of each group at a time after the warm-up."""
        raise NotImplementedError

    def _get_lr(self, t: float) -> list[float]:
        if t < self.warmup_t:
            return [self.warmup_lr_init + t * step for step in self.warmup_steps]
        return self.rates(t - self.warmup_t if self.warmup_prefix else t)

    def get_epoch_values(self, epoch: int) -> list[float] | None:
        return self._get_lr(epoch) if self.t_in_epochs else None

    def get_update_values(self, num_updates: int) -> list[float] | None:
        return None if self.t_in_epochs else self._get_lr(num_updates)


def cycle(t: float, length: float, growth: float) -> tuple[int, float, float]:
    """The number of the cycle that ``t`` falls into, its length, and the time within it; each cycle is ``growth`` times
    as long as the last."""
    if growth == 1.0:
        number = int(t // length)
        return number, length, t - length * number
    number = math.floor(math.log(1 - t / length * (1 - growth), growth))
    return number, growth**number * length, t - (1 - growth**number) / (1 - growth) * length


def cycle_length(length: float, growth: float, cycles: int) -> int:
    """The time that ``cycles`` cycles take, at least one."""
    cycles = max(1, cycles)
    return int(length * cycles) if growth == 1.0 else int(math.floor(-length * (growth**cycles - 1) / (1 - growth)))
