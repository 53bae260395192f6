"""Optimizer and learning rate from flags."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from fastnn import optimizers
from fastnn.flags import FLAGS, Flags
from fastnn.schedules import learning_rate
from oneflow.optim.lr_scheduler import LRScheduler


class FlagSchedule(LRScheduler):
    """The learning rate of the flags, as a scheduler that a graph takes."""

    def __init__(self, optimizer: torch.optim.Optimizer, flags: Flags) -> None:
        self._flags = flags.values()
        super().__init__(optimizer)

    def get_lr(self, base_lr: float, step: int) -> float:
        """The rate of a step; ``base_lr`` is among the flags."""
        return learning_rate(step, **self._flags)

    def state_dict(self) -> dict[str, Any]:
        """Where it stands; the flags are those of the run."""
        return {"last_step": self.last_step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from there."""
        self.last_step = state_dict["last_step"]
        self._set(self.rates(self.last_step))


def get_optimizer(params: Iterable[tuple[str, Tensor]], flags: Flags = FLAGS) -> torch.optim.Optimizer:
    """The optimizer that the flags ask for, over variables with their names."""
    values = flags.values()
    first = learning_rate(0, **values)
    del values["learning_rate"]
    return optimizers.create(flags.optimizer, params, first, **values)


def configure_learning_rate(num_sample_per_epoch: int, global_step: int, flags: Flags = FLAGS) -> float:
    """The rate after ``global_step`` updates; no schedule reads the number of samples."""
    return learning_rate(global_step, **flags.values())
