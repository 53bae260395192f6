"""The backend of one device: jobs run in this process, as programs of a world of one rank. No process, no copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import RLock
from typing import Any

import numpy as np
import torch

from oneflow.engine.assignment.distribute import CompileTarget, distribute_job, feeds_like
from oneflow.engine.ir.graph import Reader, VariableDecl
from oneflow.engine.job.backend import Values
from oneflow.engine.job.clock import step_clock
from oneflow.engine.job.programs import Programs, shapes_of
from oneflow.engine.job.traced import Traced
from oneflow.engine.passes.pipeline import compile_rank
from oneflow.engine.runtime.rank.rank import Rank
from oneflow.engine.runtime.rank.rank_readers import Opened
from oneflow.engine.runtime.rank.variables import VariableStore
from oneflow.engine.sharding.mesh import Mesh, whole_on
from oneflow.engine.step.rank_variables import RankVariables

_ALONE = whole_on(Mesh((0,), (1,)))


class LocalVariables:
    """The variables of a world of one rank: all whole, in this process."""

    def __init__(self, own: RankVariables) -> None:
        self.own = own

    def declare(self, decls: Sequence[VariableDecl], seed: int, draws: int) -> None:
        self.own.declare([(decl, _ALONE) for decl in decls], seed, draws)

    def initialise(self, seed: int, draws: int) -> None:
        self.own.initialise(seed, draws)

    def numpy(self, decl: VariableDecl) -> np.ndarray:
        return self.own.read([decl.name])[0]

    def write(self, values: Mapping[str, np.ndarray]) -> None:
        self.own.write({name: torch.from_numpy(np.array(value, order="C")) for name, value in values.items()})


class LocalBackend:
    """Runs jobs in this process. Programs are compiled by the thread that holds ``making``."""

    has_workers = False
    workers = 1

    def __init__(self, store: VariableStore, making: RLock) -> None:
        self.rank = Rank(0, torch.device("cpu"))
        self.variables = LocalVariables(self.rank.variables)
        self._store = store
        self._making = making

    def open(self, job: Traced, device: torch.device) -> LocalJob:
        if device.type == "cuda":  # never run where the tests run: no GPU there
            self.rank.variables.device = device
        numbers = {node: i for i, node in enumerate(job.graph.feeds())}
        self.rank.readers.open(
            job.name, [Opened(source, tuple(numbers[node] for node in nodes)) for source, nodes in job.graph.sources]
        )
        return LocalJob(job, self.rank, self._store, self._making)

    def close(self) -> None:
        """There is nothing but memory, which goes with the last that refers to it."""


class LocalJob:
    """A job in this process, with a program for every set of input shapes that it was given."""

    def __init__(self, job: Traced, rank: Rank, store: VariableStore, making: RLock) -> None:
        self._job = job
        self._made = lambda inputs: LocalProgram(self._job, inputs, rank, store)
        self.programs: Programs[LocalProgram] = Programs(making, job.settings.shapes_kept)

    def step(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Values, Values]:
        job = self._job
        tensors = job.signature.bind(args, kwargs, job.settings.micro_batches)
        return self.programs.of(
            shapes_of(tensors) if job.signature.is_dynamic else (), lambda: self._made(tensors)
        ).step(tensors)

    def readers(self) -> Mapping[str, Reader]:
        return self._job.graph.readers()

    def refresh(self, traced: Traced) -> None:
        self._job = traced
        self.programs.forget()

    def close(self) -> None:
        self.programs.forget()


class LocalProgram:
    """The compiled step of a job for one set of input shapes."""

    def __init__(self, job: Traced, inputs: list[torch.Tensor], rank: Rank, store: VariableStore) -> None:
        device = rank.variables.device
        job.tell_precision(device)
        rank.readers.start(job.name)  # reads while the job is compiled
        if job.settings.deterministic and device.type == "cuda":  # never run where the tests run: no GPU there
            torch.backends.cudnn.deterministic = True
        assigned = distribute_job(job.graph, _target(job, job.micro_batches(inputs)[0], device))
        # A job of dynamic inputs has a program for every shape it has met; each would hold the net once more.
        program = compile_rank(assigned, 0, keeps_values=not job.signature.is_dynamic)
        self._own = rank.load(program)
        self.executor = self._own.executor
        self._job = job
        self._taken = [i for i in program.feeds if i < len(inputs)]
        self._takes_all = self._taken == list(range(len(inputs)))
        self._is_one = job.settings.micro_batches == 1
        self._clock = step_clock(job, assigned.rates(), store.host)

    def step(self, inputs: list[torch.Tensor]) -> tuple[Values, Values]:
        """One call of the job."""
        feeds = [inputs] if self._is_one else self._job.micro_batches(inputs)
        if not self._takes_all:
            feeds = [[own[i] for i in self._taken] for own in feeds]
        results, watched, is_finite = self._own.step(self._clock.step(), feeds)
        self._clock.advance(is_finite)
        return (tuple(results[0]), tuple(watched[0])) if self._is_one else (_joined(results), _joined(watched))


def _target(job: Traced, feeds: list[torch.Tensor], device: torch.device) -> CompileTarget:
    layouts = dict.fromkeys(job.graph.variables, _ALONE)
    return CompileTarget(
        {(0, 0): 0},
        layouts,
        feeds_like(job.graph, feeds, device),
        device,
        job.settings.mixed_precision,
        job.settings.fusion,
    )


def _joined(values: Sequence[Sequence[torch.Tensor]]) -> Values:
    """Each value as one tensor: what the micro-batches gave, put together along the first dim."""
    return tuple(torch.cat(parts) for parts in zip(*values))
