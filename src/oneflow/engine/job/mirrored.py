"""A job in the mirrored view on workers: every device (a data parallel replica) has inputs, a program and results of
its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from oneflow.engine.core.region import span
from oneflow.engine.ir.graph import Reader
from oneflow.engine.job.backend import Values
from oneflow.engine.job.compiling import Compiling
from oneflow.engine.job.programs import Programs, shapes_of
from oneflow.engine.job.traced import Traced
from oneflow.engine.runtime.driver.driver import Loaded
from oneflow.engine.runtime.driver.lane import Lane
from oneflow.engine.sharding.mesh import Mesh
from oneflow.engine.step.step_clock import StepClock

Pieces = list[np.ndarray]
"""A value of a mirrored job: one array per device."""


class MirroredJob:
    """The programs of a mirrored job: one for each set of input shapes that a device was given. All are loaded on every
    rank, and in a step each rank runs the one that its inputs need."""

    def __init__(self, compiling: Compiling, mesh: Mesh) -> None:
        self._compiling = compiling
        self._driver = compiling.driver
        self._mesh = mesh
        limit = max(compiling.job.settings.shapes_kept, mesh.size)  # a step may run another program on each device
        self._programs: Programs[Loaded] = Programs(compiling.making, limit, compiling.driver.unload_program)
        self._clock: StepClock | None = None

    def step(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Values, Values]:
        """One call of the job, given the inputs of each device."""
        job = self._compiling.job
        inputs = job.signature.bind_each(args, kwargs, job.settings.micro_batches, self._mesh.size)
        cuts = [job.micro_batches(tensors) for tensors in inputs]
        while True:  # another thread may unload a program before it runs
            of_device = [self._program(device, micro[0]) for device, micro in enumerate(cuts)]
            with self._driver.turn(), self._driver.interrupts:
                if not any(program.is_unloaded for program in of_device):
                    return self._run(cuts, of_device)

    def _run(self, cuts: list[list[list[torch.Tensor]]], of_device: list[Loaded]) -> tuple[Values, Values]:
        """Runs a step of the program of each device. The caller holds the driver's turn."""
        of_rank = dict(zip(self._mesh.ranks, of_device))
        # A rank that is none of the job's devices has an empty share in any of its programs.
        loaded = [of_rank.get(rank, of_device[0]) for rank in range(self._driver.world.size)]
        lanes = [loaded[rank].lanes[rank] for rank in self._mesh.ranks]
        assert self._clock is not None
        for lane, micro in zip(lanes, cuts):
            _feed(lane, micro)
        self._clock.advance(self._driver.step(loaded, self._clock.step(), self._compiling.job.name))
        return _pieces([lane.results for lane in lanes]), _pieces([lane.watched for lane in lanes])

    def _program(self, device: int, inputs: list[torch.Tensor]) -> Loaded:
        """The program for what a device is given, and for the rows that readers give it."""
        rows = tuple(
            span(source.specs[0].shape[0], self._mesh.size, device) for source, _ in self._compiling.job.graph.sources
        )
        sizes = tuple((stop - start,) for start, stop in rows)
        return self._programs.of((*shapes_of(inputs), *sizes), lambda: self._made(inputs, device))

    def _made(self, tensors: list[torch.Tensor], device: int) -> Loaded:
        if not self._programs.by_shapes:
            self._compiling.job.tell_precision(self._compiling.device)
        assigned = self._compiling.assigned(tensors, device, self._mesh.size)
        self._clock = self._clock or self._compiling.clock(assigned)
        return self._compiling.load(assigned, len(tensors))

    def readers(self) -> Mapping[str, Reader]:
        return self._compiling.readers()

    def refresh(self, traced: Traced) -> None:
        self._programs.forget()
        self._clock = None
        self._compiling.refresh(traced)

    def close(self) -> None:
        self._programs.forget()


def _feed(lane: Lane, micro: list[list[torch.Tensor]]) -> None:
    for places, tensors in zip(lane.feeds, micro):
        for i, tensor in enumerate(tensors):
            np.copyto(places[i], tensor.numpy())


def _pieces(sent: list[list[list[np.ndarray] | None]]) -> tuple[Pieces, ...]:
    """For each result what every device left in its lane: the results of its micro-batches, put together along the
    first dim."""
    return tuple([_joined(parts) for parts in of_devices] for of_devices in zip(*sent))


def _joined(parts: list[np.ndarray] | None) -> np.ndarray:
    assert parts is not None
    return parts[0].copy() if len(parts) == 1 else np.concatenate(parts)
