"""``ReduceLROnPlateau``: the one scheduler whose rates depend on what the program measures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.number import flag, number, whole


class ReduceLROnPlateau(torch.optim.lr_scheduler.ReduceLROnPlateau):
    """torch's: ``step(metrics)`` multiplies the rates by ``factor`` when the metric has not become better for
    ``patience`` steps. ``verbose`` prints it. Its rates are no formula of the step, so a graph cannot have it: call
    ``step`` between the calls of the graph."""

    is_function_of_step = False

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        mode: Literal["min", "max"] = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: Literal["rel", "abs"] = "rel",
        cooldown: int = 0,
        min_lr: float | Sequence[float] = 0,
        eps: float = 1e-8,
        verbose: bool = False,
    ) -> None:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise ArgumentError(
                f"a scheduler takes an optimizer of flow.optim or torch.optim, got {type(optimizer).__name__}"
            )
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise ArgumentError(
                f"mode is 'min' or 'max' and threshold_mode 'rel' or 'abs', got {mode!r} and {threshold_mode!r}"
            )
        factor, patience, cooldown = (
            number("factor", factor, 0, below=1),
            whole("patience", patience, 0),
            whole("cooldown", cooldown, 0),
        )
        lowest = list(min_lr) if isinstance(min_lr, Sequence) else min_lr
        super().__init__(optimizer, mode, factor, patience, threshold, threshold_mode, cooldown, lowest, eps)
        self.verbose = flag("verbose", verbose)

    @property
    def last_step(self) -> int:
        """How often ``step`` was called."""
        return self.last_epoch

    def _reduce_lr(self, epoch: int) -> None:
        super()._reduce_lr(epoch)
        if self.verbose:
            print(f"step {epoch}: the rates are {[group['lr'] for group in self.optimizer.param_groups]}")
