"""What the number of a step decides for all ranks: its learning rates and its loss scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from oneflow.compiler.distribute import Assigned
from oneflow.runtime.executor import Counter
from oneflow.runtime.rank_executor import Step, StepResult

if TYPE_CHECKING:
    from oneflow.job.job import Job


class Pace:
    """The step count of a job on workers, kept by the driver, with what follows from it."""

    def __init__(self, job: Job, assigned: Assigned) -> None:
        graph, tensors = job.graph, job.session.store.tensors
        assert graph is not None
        self._training = graph.training
        self._counter = Counter(tensors[job.counter_name] if graph.is_train else job.calls)
        self._rates = [group.rate for group in assigned.groups if id(group.optimizer) not in assigned.custom_rates]
        self._scale_state: tuple[torch.Tensor, torch.Tensor] | None = None
        if self._training is not None and self._training.loss_scale.is_dynamic:
            name, counter = job.loss_scale_names
            self._scale_state = tensors[name], tensors[counter]

    def steps(self, feeds: Sequence[Sequence[Mapping[int, torch.Tensor]]]) -> list[Step]:
        """What each rank is told of the coming step, given the feeds of its micro-batches."""
        number = self._counter.value()
        rates = tuple(rate(number) for rate in self._rates)
        scale = self._scale()
        return [Step(number, rates, scale, fed) for fed in feeds]

    def advance(self, outcomes: Sequence[StepResult]) -> None:
        """Counts a step that has run."""
        if self._scale_state is not None:
            is_finite = all(outcome.is_finite for outcome in outcomes)
            scale, good = self._training.loss_scale.adjusted(float(self._scale_state[0]), int(self._scale_state[1]), is_finite)
            self._scale_state[0].fill_(scale)
            self._scale_state[1].fill_(good)
        self._counter.advance()

    def _scale(self) -> float:
        if self._scale_state is not None:
            return float(self._scale_state[0])
        return self._training.loss_scale.initial if self._training is not None else 1.0
