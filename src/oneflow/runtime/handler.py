"""What a worker does: keeps its parts of the variables, its share of the readers, and runs its programs."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import oneflow.collective as collective
from oneflow.compiler.mesh import Layout
from oneflow.compiler.rank_program import RankProgram
from oneflow.compiler.wire import unpack
from oneflow.ir.graph import Source, VariableDecl
from oneflow.runtime.lane import Form, Lane
from oneflow.runtime.rank_executor import RankExecutor, Step, StepResult
from oneflow.core.shared_memory import Reference, attach_for_good
from oneflow.runtime.variables import draw
from oneflow.runtime.world import Context


@dataclass(frozen=True)
class Opened:
    """A reader's share of a rank: the source, the numbers of the feeds it makes, and which share of how many it is."""

    source: Source
    feeds: tuple[int, ...]
    share: int
    shares: int


class RankHandler:
    """The methods that the driver calls on every rank. Its thread does nothing else, and is in inference mode from then on."""

    def __init__(self, context: Context) -> None:
        torch.inference_mode().__enter__()
        self._rank = context.rank
        self._device = context.device
        self._layouts: dict[str, Layout] = {}
        self._decls: dict[str, VariableDecl] = {}
        self._tensors: dict[str, torch.Tensor] = {}
        self._sources: dict[str, list[Opened]] = {}
        self._programs: dict[int, _Program] = {}
        self._shared: dict[Reference, np.ndarray] = {}

    # -------------------------------------------------------------- variables

    def declare(self, decls: Sequence[tuple[VariableDecl, Layout]], seed: int, draws: int) -> None:
        """Gives storage and first values to this rank's parts of new variables."""
        for decl, layout in decls:
            self._decls[decl.name], self._layouts[decl.name] = decl, layout
            block = layout.block(decl.spec.shape, self._rank)
            if block is not None:
                part = draw(decl, seed, draws)[block]
                memory = torch.channels_last if decl.channels_last and part.dim() == 4 else torch.contiguous_format
                self._tensors[decl.name] = part.to(self._device).clone(memory_format=memory)

    def initialise(self, seed: int, draws: int) -> None:
        """Draws every variable anew."""
        for name, tensor in self._tensors.items():
            decl = self._decls[name]
            tensor.copy_(draw(decl, seed, draws)[self._layouts[name].block(decl.spec.shape, self._rank)])

    def read(self, names: Sequence[str]) -> list[np.ndarray]:
        """This rank's parts of some variables."""
        return [self._tensors[name].detach().cpu().contiguous().numpy() for name in names]

    def write(self, parts: Mapping[str, torch.Tensor]) -> None:
        """Sets this rank's parts of some variables."""
        for name, part in parts.items():
            self._tensors[name].copy_(part)

    # -------------------------------------------------------------- readers

    def open(self, job: str, opened: Sequence[Opened]) -> None:
        """Takes the readers of a job, in place of those it had."""
        for one in self._sources.pop(job, []):
            one.source.close()
        for one in opened:
            one.source.share(one.share, one.shares)
        self._sources[job] = list(opened)

    def state(self, job: str, reader: str) -> dict[str, Any] | None:
        """Where a reader stands."""
        return next((one.source.state() for one in self._sources.get(job, []) if one.source.name == reader), None)

    def load_state(self, job: str, reader: str, state: dict[str, Any]) -> None:
        """Takes a reader to where it stood."""
        for one in self._sources.get(job, []):
            if one.source.name == reader:
                one.source.load_state(state)
                return

    # -------------------------------------------------------------- programs

    def load(
        self,
        number: int,
        program: RankProgram,
        variables: Sequence[str],
        groups: Sequence[tuple[int, ...]],
        form: Form,
        shared: Reference | None,
    ) -> None:
        """Makes a program ready to run; it is known by its number from then on. ``groups`` are those that any rank's program uses; the
        memory of its lane is shared with the driver if that is on this host."""
        collective.make_groups(groups)
        for one in self._sources.get(program.job, []):
            one.source.start()
        tensors = {name: self._tensors[name] for name in variables if name in self._tensors}
        executor = RankExecutor(unpack(program), tensors, self._device)
        self._programs[number] = _Program(program.job, executor, Lane(form, self._memory(form.size, shared)))

    def _memory(self, size: int, shared: Reference | None) -> np.ndarray:
        """The memory of a lane; of one that is shared there is one mapping, however many programs use it."""
        if shared is None:
            return np.empty(size, np.uint8)
        if shared not in self._shared:
            self._shared[shared] = attach_for_good(shared)
        return self._shared[shared]

    def step(
        self, program: int, number: int, rates: tuple[float, ...], scale: float, fed: np.ndarray | None
    ) -> tuple[bool, np.ndarray | None]:
        """Runs one step of a program on what is in its lane, where ``fed`` comes from another host; whether the gradients were finite, and
        the results where they go to another host."""
        own = self._programs[program]
        if fed is not None:
            own.lane.fed[:] = fed
        outcome = own.executor.run(Step(number, rates, scale), [self._fed(own.job, feeds) for feeds in own.feeds])
        own.give(outcome)
        return outcome.is_finite, None if fed is None else own.lane.given

    def _fed(self, job: str, lane: Mapping[int, torch.Tensor]) -> Mapping[int, torch.Tensor]:
        """What a micro-batch gets: its part of every input, and fresh data from the readers."""
        sources = self._sources.get(job)
        if sources:
            lane = {**lane, **{i: tensor for one in sources for i, tensor in zip(one.feeds, one.source.next())}}
        if self._device.type == "cpu":
            return lane
        return {i: tensor.to(self._device, non_blocking=True) for i, tensor in lane.items()}  # never run where the tests run: no GPU there

    def unload(self, job: str) -> None:
        """Forgets the programs of a job, and gives back their memory: graphs hang together in cycles."""
        self._programs = {number: program for number, program in self._programs.items() if program.job != job}
        gc.collect()


class _Program:
    """A program that can run, and tensors over its lane."""

    def __init__(self, job: str, executor: RankExecutor, lane: Lane) -> None:
        self.job = job
        self.executor = executor
        self.lane = lane
        self.feeds = [{i: torch.from_numpy(array) for i, array in feeds.items()} for feeds in lane.feeds]
        self._given = [[torch.from_numpy(array) for array in arrays] for arrays in (*lane.results, *lane.watched) if arrays is not None]

    def give(self, outcome: StepResult) -> None:
        """Puts the results of a step into the lane."""
        values = [parts for parts in (*outcome.results, *outcome.watched) if parts is not None]
        for places, parts in zip(self._given, values):
            for place, part in zip(places, parts):
                place.copy_(part)
