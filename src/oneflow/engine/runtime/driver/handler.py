"""What the driver can ask of a worker: forwarded to its rank. Tensors of a step travel through lanes."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

import oneflow.engine.collective as collective
from oneflow.engine.core.shared_memory import Reference, attach_for_good
from oneflow.engine.ir.graph import VariableDecl
from oneflow.engine.program.serialize import PackedProgram, unpack
from oneflow.engine.runtime.driver.lane import Form, Lane
from oneflow.engine.runtime.launch.world import Context
from oneflow.engine.runtime.rank.rank import Rank, RankJob
from oneflow.engine.runtime.rank.rank_readers import Opened
from oneflow.engine.sharding.mesh import Layout
from oneflow.engine.step.executor import StepNumbers, StepResult


class RankHandler:
    """The methods that the driver calls on every rank."""

    def __init__(self, context: Context) -> None:
        self._rank = Rank(context.rank, context.device)
        self._programs: dict[int, _LaneJob] = {}
        self._shared: dict[Reference, np.ndarray] = {}

    # -------------------------------------------------------------- variables

    def declare(self, decls: Sequence[tuple[VariableDecl, Layout]], seed: int, draws: int) -> None:
        self._rank.variables.declare(decls, seed, draws)

    def initialise(self, seed: int, draws: int) -> None:
        self._rank.variables.initialise(seed, draws)

    def read(self, names: Sequence[str]) -> list[np.ndarray]:
        return self._rank.variables.read(names)

    def write(self, parts: Mapping[str, torch.Tensor]) -> None:
        self._rank.variables.write(parts)

    # -------------------------------------------------------------- readers

    def open(self, job: str, opened: Sequence[Opened]) -> None:
        self._rank.readers.open(job, opened)

    def state(self, job: str, reader: str) -> dict[str, Any] | None:
        return self._rank.readers.state(job, reader)

    def load_state(self, job: str, reader: str, state: dict[str, Any]) -> None:
        self._rank.readers.load_state(job, reader, state)

    # -------------------------------------------------------------- programs

    def load(
        self,
        number: int,
        packed: PackedProgram,
        groups: Sequence[tuple[int, ...]],
        form: Form,
        shared: Reference | None,
    ) -> None:
        """Makes a program ready to run; it is known by its number from then on. ``groups`` are those that any rank's
        program uses; the memory of its lane is shared with the driver if that is on this host."""
        collective.make_groups(groups)
        program = unpack(packed)
        job = self._rank.load(program)
        self._programs[number] = _LaneJob(job, program.feeds, Lane(form, self._memory(form.size, shared)))

    def _memory(self, size: int, shared: Reference | None) -> np.ndarray:
        """The memory of a lane; of one that is shared there is one mapping, however many programs use it."""
        if shared is None:
            return np.empty(size, np.uint8)
        if shared not in self._shared:
            self._shared[shared] = attach_for_good(shared)
        return self._shared[shared]

    def step(
        self,
        program: int,
        number: int,
        rates: tuple[float, ...],
        scale: float,
        fed: np.ndarray | None,
    ) -> tuple[bool, np.ndarray | None]:
        """Runs one step of a program on the inputs in its lane; ``fed`` are inputs from another host. Returns whether
        the gradients were finite, and the results if they go to another host."""
        own = self._programs[program]
        if fed is not None:
            own.lane.fed[:] = fed
        is_finite = own.step(StepNumbers(number, rates, scale))
        return is_finite, None if fed is None else own.lane.given

    def program_count(self) -> int:
        return len(self._programs)

    def unload_program(self, number: int) -> None:
        """Forgets one program and frees its memory, which reference cycles hold."""
        del self._programs[number]
        gc.collect()

    def unload(self, job: str) -> None:
        """Forgets the programs of a job, and gives back their memory: graphs hang together in cycles."""
        self._programs = {number: program for number, program in self._programs.items() if program.job.name != job}
        gc.collect()


class _LaneJob:
    """A program that can run on what is in a lane."""

    def __init__(self, job: RankJob, feeds: tuple[int, ...], lane: Lane) -> None:
        self.job = job
        self.lane = lane
        self._inputs = [[torch.from_numpy(own[i]) for i in feeds if i in own] for own in lane.feeds]
        self._places = [[torch.from_numpy(array) for array in own] for own in lane.given_by_micro_batch()]

    def step(self, step: StepNumbers) -> bool:
        """One step, from the lane into the lane; whether the gradients were finite."""
        result: StepResult = self.job.step(step, self._inputs)
        for places, results, watched in zip(self._places, result.results, result.watched):
            for place, value in zip(places, (*results, *watched)):
                place.copy_(value)
        return result.is_finite
