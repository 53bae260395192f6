"""What the number of a step decides for all ranks: its learning rates and its loss scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from oneflow.compiler.distribute import Assigned
from oneflow.job.runner import running_scale
from oneflow.runtime.executor import Counter
from oneflow.runtime.rank_executor import Step, StepResult

if TYPE_CHECKING:
    from oneflow.job.job import Job


class Pace:
    """The step count of a job on workers, kept by the driver, with what follows from it."""

    def __init__(self, job: Job, assigned: Assigned) -> None:
        graph, tensors = job.graph, job.session.store.tensors
        assert graph is not None
        self._counter = Counter(tensors[job.counter_name] if graph.is_train else job.calls)
        self._rates = [group.rate for group in assigned.groups if id(group.optimizer) not in assigned.custom_rates]
        self._scale = running_scale(job)

    def steps(self, feeds: Sequence[Sequence[Mapping[int, torch.Tensor]]]) -> list[Step]:
        """What each rank is told of the coming step, given the feeds of its micro-batches."""
        number = self._counter.value()
        rates = tuple(rate(number) for rate in self._rates)
        scale = self._scale.value()
        return [Step(number, rates, scale, fed) for fed in feeds]

    def advance(self, outcomes: Sequence[StepResult]) -> None:
        """Counts a step that has run."""
        self._scale.adjust(all(outcome.is_finite for outcome in outcomes))
        self._counter.advance()
