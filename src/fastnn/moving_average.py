"""An exponential moving average of all variables of a network, statistics of batch norms included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fastnn.errors import FlagError


class MovingAverage:
    """``shadow = d * shadow + (1 - d) * variable`` after each step, with ``d = min(decay, (1 + step) / (10 +
    step))``."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        if not 0.0 < decay < 1.0:
            raise FlagError(f"--moving_average_decay is between 0 and 1, got {decay}")
        self._decay = decay
        self._variables = {name: value for name, value in module.state_dict().items() if value.is_floating_point()}
        self._shadows = {name: value.detach().clone() for name, value in self._variables.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Moves the averages on; ``step`` is the number of updates that are done."""
        rest = 1.0 - min(self._decay, (1.0 + step) / (10.0 + step))
        for name, value in self._variables.items():
            self._shadows[name].add_(value - self._shadows[name], alpha=rest)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The variables are their averages inside the context."""
        kept = {name: value.detach().clone() for name, value in self._variables.items()}
        self._set(self._shadows)
        try:
            yield
        finally:
            self._set(kept)

    @torch.no_grad()
    def _set(self, values: Mapping[str, Tensor]) -> None:
        for name, value in values.items():
            self._variables[name].copy_(value)

    def state_dict(self) -> dict[str, Any]:
        """The averages by name."""
        return dict(self._shadows)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what ``state_dict`` gave."""
        from libai.utils.checkpoint import laid_as

        with torch.no_grad():
            for name, shadow in self._shadows.items():
                shadow.copy_(laid_as(state[name], shadow))
