"""What a worker does: keeps its parts of the variables, its share of the readers, and runs its programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from oneflow.compiler.mesh import Layout
from oneflow.compiler.rank_program import RankProgram
from oneflow.compiler.wire import unpack
from oneflow.ir.graph import Source, VariableDecl
from oneflow.ops import collective
from oneflow.runtime.rank_executor import RankExecutor, Step
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
    """The methods that the driver calls on every rank."""

    def __init__(self, context: Context) -> None:
        self._rank = context.rank
        self._device = context.device
        self._layouts: dict[str, Layout] = {}
        self._decls: dict[str, VariableDecl] = {}
        self._tensors: dict[str, torch.Tensor] = {}
        self._sources: dict[str, list[Opened]] = {}
        self._executors: dict[int, tuple[RankExecutor, str]] = {}

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

    def read(self, names: Sequence[str]) -> list[torch.Tensor]:
        """This rank's parts of some variables."""
        return [self._tensors[name].detach().cpu().contiguous() for name in names]

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

    def load(self, number: int, program: RankProgram, variables: Sequence[str], groups: Sequence[tuple[int, ...]]) -> None:
        """Makes a program ready to run; it is known by its number from then on. ``groups`` are those that any rank's program uses."""
        collective.make_groups(groups)
        for one in self._sources.get(program.job, []):
            one.source.start()
        tensors = {name: self._tensors[name] for name in variables if name in self._tensors}
        self._executors[number] = RankExecutor(unpack(program), tensors, self._device), program.job

    def step(
        self, program: int, number: int, rates: tuple[float, ...], scale: float, fed: Sequence[Mapping[int, torch.Tensor]]
    ) -> tuple[Any, ...]:
        """Runs one step of a program; the fields of a ``StepResult``."""
        executor, job = self._executors[program]
        outcome = executor.run(Step(number, rates, scale, [self._fed(job, parts) for parts in fed]))
        return _on_host(outcome.results), _on_host(outcome.watched), outcome.is_finite

    def _fed(self, job: str, fed: Mapping[int, torch.Tensor]) -> dict[int, torch.Tensor]:
        """What a micro-batch gets: its part of every input, and fresh data from the readers."""
        feeds = dict(fed)
        for one in self._sources.get(job, []):
            feeds.update(zip(one.feeds, one.source.next()))
        if self._device.type == "cpu":
            return feeds
        return {i: tensor.to(self._device, non_blocking=True) for i, tensor in feeds.items()}  # never run where the tests run: no GPU there

    def unload(self, job: str) -> None:
        """Forgets the programs of a job."""
        self._executors = {number: (executor, its) for number, (executor, its) in self._executors.items() if its != job}


def _on_host(values: list[list[torch.Tensor] | None]) -> list[list[torch.Tensor] | None]:
    return [None if parts is None else [part.cpu() for part in parts] for parts in values]
