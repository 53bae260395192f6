"""What one rank keeps and does: its part of every variable, its share of the readers, its programs. It needs no
driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from oneflow.engine.program.program import Program
from oneflow.engine.runtime.rank.held_once import HeldOnce
from oneflow.engine.runtime.rank.rank_readers import RankReaders
from oneflow.engine.step.executor import Executor, StepNumbers, StepResult
from oneflow.engine.step.rank_variables import RankVariables


class Rank:
    """One rank of a run, on its device."""

    def __init__(self, number: int, device: torch.device) -> None:
        self.variables = RankVariables(number, device)
        self._held_once = HeldOnce(self.variables.tensors)
        self.readers = RankReaders()

    def load(self, program: Program) -> RankJob:
        """Makes a program ready to run."""
        if self._held_once.admit(program):
            self.variables.version += 1  # what was made of them lies where they lay
        self.readers.start(program.job)
        return RankJob(program, Executor(program, self.variables), self.readers)


class RankJob:
    """A program that can run, with the readers that feed it."""

    def __init__(self, program: Program, executor: Executor, readers: RankReaders) -> None:
        self.name = program.job
        self.executor = executor
        self._readers = readers
        self._numbers = program.feeds
        self._reads = readers.has(program.job)
        self._device = executor.device
        self._is_fed_as_is = not self._reads and self._device.type == "cpu"

    def step(self, step: StepNumbers, inputs: Sequence[Sequence[torch.Tensor]]) -> StepResult:
        """Runs one step on the inputs of each micro-batch, which this rank has in the order of the program's feeds but
        for what readers give."""
        return self.executor.run(step, inputs if self._is_fed_as_is else [self._fed(own) for own in inputs])

    def _fed(self, given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """What a micro-batch gets: its part of every input, and fresh data from the readers."""
        fresh: Mapping[int, torch.Tensor] = self._readers.next(self.name) if self._reads else {}
        own = iter(given)
        tensors = [fresh[i] if i in fresh else next(own) for i in self._numbers]
        return [tensor.to(self._device, non_blocking=True) for tensor in tensors]
