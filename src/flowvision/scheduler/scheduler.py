"""Learning rates by epoch or by update: ``step(epoch)`` after an epoch, ``step_update(num_updates)`` after an
update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from oneflow.engine.core.errors import ArgumentError

NoiseRange = float | Sequence[float] | None


class Scheduler:
    """Writes ``param_group_field`` of every parameter group. A class below gives the values: ``get_epoch_values`` or
    ``get_update_values``.

    ``noise_range_t`` is the time from which, or the pair between which, values are multiplied by 1 + noise: normal with
    ``noise_std``, drawn anew where it leaves ``noise_pct``, or uniform within it (``noise_type``). It is a function of
    ``noise_seed`` and the time.
    """

    def __init__(
        self,
        optimizer: Any,
        param_group_field: str,
        noise_range_t: NoiseRange = None,
        noise_type: str = "normal",
        noise_pct: float = 0.67,
        noise_std: float = 1.0,
        noise_seed: int | None = None,
        initialize: bool = True,
    ) -> None:
        self.optimizer, self.param_group_field = optimizer, param_group_field
        first = f"initial_{param_group_field}"
        for number, group in enumerate(optimizer.param_groups):
            if param_group_field not in group:
                raise ArgumentError(f"{param_group_field} is missing from parameter group {number}")
            if initialize:
                group.setdefault(first, group[param_group_field])
            elif first not in group:
                raise ArgumentError(f"{first} is missing from parameter group {number}; it is set with initialize=True")
        self.base_values = [group[first] for group in optimizer.param_groups]
        self.metric: float | None = None
        self.noise_range_t, self.noise_type, self.noise_pct, self.noise_std = (
            noise_range_t,
            noise_type,
            noise_pct,
            noise_std,
        )
        self.noise_seed = 42 if noise_seed is None else noise_seed
        self.update_groups(self.base_values)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.__dict__.update(state_dict)

    def get_epoch_values(self, epoch: int) -> list[float] | None:
        """The value of each group after ``epoch`` epochs; None where updates count."""
        return None

    def get_update_values(self, num_updates: int) -> list[float] | None:
        """The value of each group after ``num_updates`` updates; None where epochs count."""
        return None

    def step(self, epoch: int, metric: float | None = None) -> None:
        self.metric = metric
        values = self.get_epoch_values(epoch)
        if values is not None:
            self.update_groups(self._with_noise(values, epoch))

    def step_update(self, num_updates: int, metric: float | None = None) -> None:
        self.metric = metric
        values = self.get_update_values(num_updates)
        if values is not None:
            self.update_groups(self._with_noise(values, num_updates))

    def update_groups(self, values: float | Sequence[float]) -> None:
        """Writes one value for all groups, or one for each."""
        each = values if isinstance(values, Sequence) else [values] * len(self.optimizer.param_groups)
        for group, value in zip(self.optimizer.param_groups, each):
            group[self.param_group_field] = value

    def _with_noise(self, values: list[float], t: int) -> list[float]:
        if self.noise_range_t is None:
            return values
        if isinstance(self.noise_range_t, Sequence):
            if not self.noise_range_t[0] <= t < self.noise_range_t[1]:
                return values
        elif t < self.noise_range_t:
            return values
        noise = self._noise(t)
        return [value + value * noise for value in values]

    def _noise(self, t: int) -> float:
        generator = torch.Generator().manual_seed(self.noise_seed + t)
        if self.noise_type != "normal":
            return float(2 * (torch.rand(1, generator=generator).item() - 0.5) * self.noise_pct)
        while True:
            noise = torch.randn(1, generator=generator).item() * self.noise_std
            if abs(noise) < self.noise_pct:
                return float(noise)
