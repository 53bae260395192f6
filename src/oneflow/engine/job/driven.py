"""The backend of several devices (single controller): this process compiles for all ranks and commands one worker per
device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import RLock
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import fx

from oneflow.engine.assignment.mirror import mirrored_mesh
from oneflow.engine.ir.graph import Graph, Reader
from oneflow.engine.job.backend import OpenJob, Values
from oneflow.engine.job.compiling import Compiling
from oneflow.engine.job.mirrored import MirroredJob
from oneflow.engine.job.programs import Programs, shapes_of
from oneflow.engine.job.signature import as_tensor
from oneflow.engine.job.traced import Traced
from oneflow.engine.job.views import check_view
from oneflow.engine.lowering.readers import shares_of
from oneflow.engine.program.notes import layout_of, val
from oneflow.engine.runtime.driver.driver import Driver, RemoteVariables, Whole
from oneflow.engine.runtime.rank.rank_readers import Opened
from oneflow.engine.runtime.rank.variables import VariableStore


class DrivenBackend:
    """Runs jobs on workers. Programs are compiled by the thread that holds ``making``."""

    has_workers = True

    def __init__(self, store: VariableStore, driver: Driver, making: RLock) -> None:
        self.driver = driver
        self.variables = RemoteVariables(driver)
        self._host = store.host
        self._making = making

    @property
    def workers(self) -> int:
        return self.driver.world.size

    def open(self, job: Traced, device: torch.device) -> OpenJob:
        """What the ranks have of an earlier trace or definition of that name, they forget: neither its programs nor its
        readers may serve this one."""
        check_view(job)
        mesh = mirrored_mesh(job.graph, self.driver.ranks) if job.graph.is_mirrored else None
        compiling = Compiling(job, device, self.driver, self.variables, self._host, self._making)
        for name, layout in compiling.layouts().items():
            self.variables.layouts.setdefault(name, layout)
        self.driver.unload(job.name)
        self.driver.open(job.name, _shares(job.graph, self.driver))
        return DrivenJob(compiling) if mesh is None else MirroredJob(compiling, mesh)

    def close(self) -> None:
        self.driver.close()


def _shares(graph: Graph, driver: Driver) -> list[list[Opened]]:
    """For each rank its share of every source: rows of the batch where the batch is split, all of it where it is
    not."""
    numbers = {node: i for i, node in enumerate(graph.feeds())}
    shares: list[list[Opened]] = [[] for _ in range(driver.world.size)]
    for source, nodes in graph.sources:
        mesh, count = shares_of(graph, source, nodes, driver.ranks)
        for position, rank in enumerate(mesh.ranks):
            shares[rank].append(
                Opened(source, tuple(numbers[node] for node in nodes), position if count > 1 else 0, count)
            )
    return shares


class DrivenJob:
    """A job on workers, with a program for every set of input shapes that it was given."""

    def __init__(self, compiling: Compiling) -> None:
        self._compiling = compiling
        self._programs: Programs[_DrivenProgram] = Programs(
            compiling.making, compiling.job.settings.shapes_kept, lambda program: program.unload()
        )

    def step(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Values, Values]:
        job = self._compiling.job
        arrays = job.signature.bind_arrays(args, kwargs, job.settings.micro_batches)
        shapes = shapes_of(arrays) if job.signature.is_dynamic else ()
        while True:  # another thread may unload the program before it runs
            program = self._programs.of(shapes, lambda: _DrivenProgram(self._compiling, list(map(as_tensor, arrays))))
            with self._compiling.driver.turn(), self._compiling.driver.interrupts:
                if not program.loaded.is_unloaded:
                    return program.step(arrays)

    def readers(self) -> Mapping[str, Reader]:
        return self._compiling.readers()

    def refresh(self, traced: Traced) -> None:
        self._programs.forget()
        self._compiling.refresh(traced)

    def close(self) -> None:
        self._programs.forget()


class _Destination(NamedTuple):
    """Where a block of an input goes."""

    block: tuple[slice, ...]
    place: np.ndarray


class _Result(NamedTuple):
    """How a result is put together, and for each micro-batch where the ranks leave their parts."""

    whole: Whole
    parts: list[dict[int, np.ndarray]]


class _DrivenProgram:
    """One compiled program of a job, loaded on every rank."""

    def __init__(self, compiling: Compiling, inputs: list[torch.Tensor]) -> None:
        self._job = compiling.job
        self._driver = compiling.driver
        self._job.tell_precision(compiling.device)
        assigned = compiling.assigned(self._job.micro_batches(inputs)[0])
        loaded = compiling.load(assigned, len(inputs))
        self.loaded = loaded
        self._targets = [self._targets_of(assigned.arguments["feed", i], i) for i in range(len(inputs))]
        self._results = self._collected(assigned.outputs.results, [lane.results for lane in loaded.lanes])
        self._watched = self._collected(assigned.outputs.watched, [lane.watched for lane in loaded.lanes])
        self._clock = compiling.clock(assigned)

    def _targets_of(self, node: fx.Node, number: int) -> list[list[_Destination]]:
        """For each micro-batch, which blocks of an input go where."""
        lanes = self.loaded.lanes
        blocks = {rank: layout_of(node).block(val(node).shape, rank) for rank in range(len(lanes))}
        return [
            [
                _Destination(block, lanes[rank].feeds[micro][number])
                for rank, block in blocks.items()
                if block is not None
            ]
            for micro in range(self._job.settings.micro_batches)
        ]

    def _collected(self, nodes: Sequence[fx.Node], sent: list[list[list[np.ndarray] | None]]) -> list[_Result]:
        results = []
        for i, node in enumerate(nodes):
            of_ranks = {rank: arrays for rank, lane in enumerate(sent) if (arrays := lane[i]) is not None}
            parts = [
                {rank: arrays[micro] for rank, arrays in of_ranks.items()}
                for micro in range(self._job.settings.micro_batches)
            ]
            results.append(_Result(Whole(layout_of(node), val(node).shape), parts))
        return results

    def step(self, inputs: list[np.ndarray]) -> tuple[Values, Values]:
        """Runs one call of the job. The caller holds the driver's turn."""
        self._feed(inputs)
        loaded = [self.loaded] * self._driver.world.size
        self._clock.advance(self._driver.step(loaded, self._clock.step(), self._job.name))
        return tuple(map(_joined, self._results)), tuple(map(_joined, self._watched))

    def unload(self) -> None:
        """Removes the program from every rank."""
        self._driver.unload_program(self.loaded)

    def _feed(self, inputs: list[np.ndarray]) -> None:
        for number, own in enumerate(self._micro_batches(inputs)):
            for array, targets in zip(own, self._targets):
                for block, place in targets[number]:
                    np.copyto(place, array[block])

    def _micro_batches(self, inputs: list[np.ndarray]) -> list[list[np.ndarray]]:
        if self._job.settings.micro_batches == 1:
            return [inputs]
        return [[tensor.numpy() for tensor in own] for own in self._job.micro_batches(list(map(as_tensor, inputs)))]


def _joined(result: _Result) -> np.ndarray:
    """A whole result: each micro-batch put together from its parts, and all of them along the first dim."""
    wholes = [result.whole.assembled(parts) for parts in result.parts]
    return wholes[0] if len(wholes) == 1 else np.concatenate(wholes)
