"""What the number of a step decides for all ranks: its learning rates and its loss scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from oneflow.engine.step.executor import StepNumbers
from oneflow.optimizer.loss_scale import LossScale


class RunningScale:
    """The loss scale of a job as it runs: fixed, or kept in two saved variables of the job, the scale and the good
    steps since it changed."""

    def __init__(self, loss_scale: LossScale, state: tuple[torch.Tensor, torch.Tensor] | None) -> None:
        self._loss_scale = loss_scale
        self._state = state

    def value(self) -> float:
        return float(self._state[0]) if self._state is not None else self._loss_scale.initial

    def adjust(self, finite: bool) -> None:
        """Notes whether the gradients of a step were finite."""
        if self._state is None:
            return
        scale, good = self._loss_scale.adjusted(float(self._state[0]), int(self._state[1]), finite)
        self._state[0].fill_(scale)
        self._state[1].fill_(good)


class StepClock:
    """The step count of a job, with what follows from it. ``count`` is a tensor of shape (1,) in main memory, which for
    a train job is a saved variable."""

    def __init__(self, count: torch.Tensor, rates: Sequence[Callable[[int], float]], scale: RunningScale) -> None:
        self._count = count.numpy()  # the same memory; a numpy number is read and raised in a tenth of the time
        self._rates = rates
        self._scale = scale

    def step(self) -> StepNumbers:
        """What the ranks are told of the coming step."""
        number = int(self._count[0])
        return StepNumbers(number, tuple([rate(number) for rate in self._rates]), self._scale.value())

    def advance(self, is_finite: bool) -> None:
        """Counts a step that has run, and notes whether its gradients were finite."""
        self._scale.adjust(is_finite)
        self._count[0] += 1
