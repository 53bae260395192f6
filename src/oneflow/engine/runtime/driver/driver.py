"""The driver, the single controller of a run: variables, readers and programs as the session sees them, spread over
workers."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from oneflow.engine.core.shared_memory import Reference
from oneflow.engine.ir.graph import Source, VariableDecl
from oneflow.engine.program.serialize import PackedProgram
from oneflow.engine.runtime.driver.cluster import Cluster
from oneflow.engine.runtime.driver.lane import Form, Lane
from oneflow.engine.runtime.launch.launchers import Launched
from oneflow.engine.runtime.launch.world import World
from oneflow.engine.runtime.rank.rank_readers import Opened
from oneflow.engine.sharding.mesh import Layout
from oneflow.engine.step.executor import StepNumbers


@dataclass(eq=False)
class Loaded:
    """A program that every rank has: its number, each rank's lane, whether the rank is on another host, and whether it
    was unloaded."""

    number: int
    lanes: list[Lane]
    is_far: list[bool]
    is_unloaded: bool = False


class _Way(NamedTuple):
    memory: np.ndarray
    reference: Reference | None


class Driver:
    """Commands the workers of a session. Whoever writes into lanes, has a step run and reads them has the ``turn``
    meanwhile, and holds ``interrupts``, so that what was begun is done. One thread at a time loads programs."""

    def __init__(self, world: World, handler: str, launched: Launched | None = None) -> None:
        self.world = world
        self.ranks = {(world.machine_of(rank), world.device_of(rank)): rank for rank in range(world.size)}
        self.cluster = Cluster(world, handler, launched=launched)
        self.interrupts = self.cluster.interrupts
        self._turn = threading.Lock()
        self._programs = 0
        self._loaded: set[str] = set()
        self._ways: dict[int, _Way] = {}
        self._reading: set[str] = set()

    def turn(self) -> threading.Lock:
        """The right to use the lanes, for a ``with``."""
        self.cluster.require_owner()
        return self._turn

    def load(
        self, job: str, programs: Sequence[PackedProgram], groups: Sequence[tuple[int, ...]], forms: Sequence[Form]
    ) -> Loaded:
        """Sends each rank its program of a job and the form of its lane."""
        self._programs += 1
        ways = [self._way(rank, form.size) for rank, form in enumerate(forms)]
        arguments = [
            (self._programs, program, groups, form, way.reference) for program, form, way in zip(programs, forms, ways)
        ]
        self.cluster.call("load", arguments, what=f"loading job {job!r}")
        self._loaded.add(job)
        lanes = [Lane(form, way.memory) for form, way in zip(forms, ways)]
        return Loaded(self._programs, lanes, [way.reference is None for way in ways])

    def _way(self, rank: int, size: int) -> _Way:
        """The memory of a rank's lanes; another one when it is too small."""
        if rank not in self._ways or self._ways[rank].memory.size < size:
            self._ways[rank] = _Way(*self.cluster.lane_memory(rank, size))
        return self._ways[rank]

    def unload_program(self, loaded: Loaded) -> None:
        """Removes one program from every rank, between steps."""
        with self.turn():
            loaded.is_unloaded = True
            self.cluster.broadcast("unload_program", loaded.number, what=f"unloading program {loaded.number}")

    def unload(self, job: str) -> None:
        """Has every rank forget the programs of a job."""
        if job in self._loaded:
            self.cluster.broadcast("unload", job, what=f"unloading job {job!r}")
            self._loaded.remove(job)

    def step(self, loaded: Sequence[Loaded], step: StepNumbers, job: str) -> bool:
        """Runs one step of a job: each rank runs its program on the inputs in its lane and writes the results there.
        Returns whether the gradients were finite."""
        what = f"job {job!r}, step {step.number}"
        # Pickling a class costs as much as the rest of a small step.
        numbers = (step.number, step.rates, step.scale)
        if loaded.count(loaded[0]) == len(loaded) and not any(loaded[0].is_far):
            answers = self.cluster.broadcast("step", loaded[0].number, *numbers, None, what=what)
        else:
            answers = self._step_of_each(loaded, numbers, what)
        return all([is_finite for is_finite, _ in answers])

    def _step_of_each(self, loaded: Sequence[Loaded], numbers: tuple[Any, ...], what: str) -> list[Any]:
        """Runs a step in which ranks run different programs, or some inputs and results go to other hosts."""
        lanes = [program.lanes[rank] for rank, program in enumerate(loaded)]
        fed = [lane.fed if loaded[0].is_far[rank] else None for rank, lane in enumerate(lanes)]
        answers = self.cluster.call(
            "step", [(program.number, *numbers, own) for program, own in zip(loaded, fed)], what=what
        )
        for lane, (_, given) in zip(lanes, answers):
            if given is not None:
                lane.given[:] = given
        return answers

    def open(self, job: str, shares: Sequence[Sequence[Opened]]) -> None:
        """Gives each rank its share of a job's readers, in place of those that the job had, if any."""
        if any(shares) or job in self._reading:
            self.cluster.call("open", [(job, opened) for opened in shares], what=f"opening the readers of job {job!r}")
            self._reading.add(job)

    def close(self) -> None:
        """Ends the workers."""
        self._ways.clear()
        self.cluster.close()


@dataclass(frozen=True)
class RemoteReader:
    """A reader that works on the ranks; its state is the same on each."""

    driver: Driver
    job: str
    source: Source
    rank: int

    def state(self) -> dict[str, Any] | None:
        what = f"asking where reader {self.source.name!r} of job {self.job!r} stands"
        return self.driver.cluster.broadcast("state", self.job, self.source.name, what=what)[self.rank]

    def load_state(self, state: dict[str, Any]) -> None:
        what = f"restoring reader {self.source.name!r} of job {self.job!r}"
        self.driver.cluster.broadcast("load_state", self.job, self.source.name, state, what=what)


class RemoteVariables:
    """Variables whose parts lie on workers, as ``layouts`` says."""

    def __init__(self, driver: Driver) -> None:
        self.layouts: dict[str, Layout] = {}
        self._driver = driver

    def declare(self, decls: Sequence[VariableDecl], seed: int, draws: int) -> None:
        told = [(decl, self.layouts[decl.name]) for decl in decls]
        self._driver.cluster.broadcast("declare", told, seed, draws, what="making variables")

    def initialise(self, seed: int, draws: int) -> None:
        self._driver.cluster.broadcast("initialise", seed, draws, what="initialising variables")

    def numpy(self, decl: VariableDecl) -> np.ndarray:
        layout = self.layouts[decl.name]
        asked = [[decl.name] if layout.is_first(rank) else [] for rank in range(self._driver.world.size)]
        parts = self._driver.cluster.call("read", [(names,) for names in asked], what=f"reading variable {decl.name!r}")
        return Whole(layout, decl.spec.shape).assembled({rank: part[0] for rank, part in enumerate(parts) if part})

    def write(self, values: Mapping[str, np.ndarray]) -> None:
        for name, value in values.items():
            tensor = torch.from_numpy(np.array(value, order="C"))
            blocks = [self.layouts[name].block(tensor.shape, rank) for rank in range(self._driver.world.size)]
            arguments = [({name: tensor[block]} if block is not None else {},) for block in blocks]
            self._driver.cluster.call("write", arguments, what=f"writing variable {name!r}")


class Whole:
    """How an array is put together from the parts that ranks hold: split ones beside each other, partial sums added."""

    def __init__(self, layout: Layout, shape: Sequence[int]) -> None:
        self._shape = tuple(shape)
        self._is_sum = any(sbp.kind == "P" for sbp in layout.sbp)
        self._blocks = {rank: layout.block(shape, rank) for rank in layout.mesh.ranks if layout.is_first(rank)}

    def assembled(self, parts: Mapping[int, np.ndarray]) -> np.ndarray:
        """A new array."""
        dtype = next(iter(parts.values())).dtype
        whole = np.zeros(self._shape, dtype) if self._is_sum else np.empty(self._shape, dtype)
        for rank, part in parts.items():
            block = whole[self._blocks[rank]] if self._shape else whole  # of rank 0 there are no views
            np.add(block, part, out=block) if self._is_sum else np.copyto(block, part)
        return whole
