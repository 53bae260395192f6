"""What the number of a step decides for all ranks: its learning rates and its loss scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oneflow.compiler.distribute import Assigned
from oneflow.job.runner import running_scale
from oneflow.runtime.executor import Counter
from oneflow.runtime.rank_executor import Step

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

    def step(self) -> Step:
        """What the ranks are told of the coming step."""
        number = self._counter.value()
        return Step(number, tuple(rate(number) for rate in self._rates), self._scale.value())

    def advance(self, is_finite: bool) -> None:
        """Counts a step that has run, and notes whether its gradients were finite."""
        self._scale.adjust(is_finite)
        self._counter.advance()
