"""A rate that falls at given times."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any

from flowvision.scheduler.scheduler import NoiseRange
from flowvision.scheduler.warmup import WarmupScheduler


class MultiStepLRScheduler(WarmupScheduler):
    """Before each of the times ``decay_t``, so that the epoch of that number has it, the rate becomes ``decay_rate`` of
    itself."""

    def __init__(
        self,
        optimizer: Any,
        decay_t: Sequence[int],
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
        self.decay_t, self.decay_rate = list(decay_t), decay_rate
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
        return [value * self.decay_rate ** bisect.bisect_right(self.decay_t, t + 1) for value in self.base_values]
