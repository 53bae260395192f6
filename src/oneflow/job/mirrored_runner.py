"""Compiles a job in the mirrored view and runs its steps: every device has inputs, a program and results of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from oneflow.compiler.distribute import Assigned, Surroundings, distribute_job
from oneflow.compiler.joint import Like
from oneflow.compiler.mirror import mirrored_mesh
from oneflow.compiler.pipeline import feed_nodes
from oneflow.core.collector import paused
from oneflow.job.pace import Pace
from oneflow.job.runner import cut, tell_precision
from oneflow.runtime.driver import Driver, Loaded, RemoteVariables
from oneflow.runtime.lane import Lane

if TYPE_CHECKING:
    from oneflow.job.job import Job

Shapes = tuple[tuple[int, ...], ...]
Pieces = list[np.ndarray]
"""A value of a mirrored job: one array a device."""


class MirroredRunner:
    """The programs of a mirrored job: one for each set of input shapes that a device was given. All are loaded on every rank, and in a step
    each rank runs the one that its inputs need."""

    def __init__(self, job: Job) -> None:
        graph, session = job.graph, job.session
        assert graph is not None and session.driver is not None
        tell_precision(job)
        self._job = job
        self._graph = graph
        self._driver: Driver = session.driver
        self._store: RemoteVariables = session.store  # type: ignore[assignment]
        self._mesh = mirrored_mesh(graph, self._driver.ranks)
        self._micro = job.settings.micro_batches
        self._programs: dict[Shapes, Loaded] = {}
        self._pace: Pace | None = None

    def step(self, inputs: Sequence[Sequence[torch.Tensor]]) -> tuple[tuple[Pieces, ...], tuple[Pieces, ...]]:
        """One call of the job, given the inputs of each device."""
        cuts = [self._cut(tensors) for tensors in inputs]
        of_device = [self._program(micro[0]) for micro in cuts]
        of_rank = dict(zip(self._mesh.ranks, of_device))
        # A rank that is none of the job's devices has an empty share in any of its programs.
        loaded = [of_rank.get(rank, of_device[0]) for rank in range(self._driver.world.size)]
        lanes = [loaded[rank].lanes[rank] for rank in self._mesh.ranks]
        assert self._pace is not None
        with self._driver.turn():
            for lane, micro in zip(lanes, cuts):
                _feed(lane, micro)
            self._pace.advance(self._driver.step(loaded, self._pace.step(), self._job.name))
            return _pieces([lane.results for lane in lanes]), _pieces([lane.watched for lane in lanes])

    def _cut(self, tensors: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
        """The inputs of one device for each micro-batch."""
        cuts = [cut(tensor, node.meta["batch_axis"], self._micro) for tensor, node in zip(tensors, self._graph.inputs)]
        return [[parts[i] for parts in cuts] for i in range(self._micro)]

    def _program(self, tensors: list[torch.Tensor]) -> Loaded:
        """The program for inputs of these shapes."""
        shapes = tuple(tuple(tensor.shape) for tensor in tensors)
        if shapes not in self._programs:
            with self._job.session.making, paused():
                if shapes not in self._programs:  # another thread may have made it meanwhile
                    self._programs[shapes] = self._made(tensors)
        return self._programs[shapes]

    def _made(self, tensors: list[torch.Tensor]) -> Loaded:
        assigned = self._compiled(tensors)
        self._pace = self._pace or Pace(self._job, assigned)
        names = [name for name in self._store if name in self._store.layouts]
        return self._driver.load(assigned, len(tensors), self._micro, names)

    def _compiled(self, tensors: list[torch.Tensor]) -> Assigned:
        job, ranks = self._job, self._driver.ranks
        feeds = [Like(tuple(t.shape), t.dtype, job.device) for t in tensors]
        for node in feed_nodes(self._graph)[len(feeds) :]:
            rows, *rest = node.meta["spec"].shape
            feeds.append(Like((rows // self._mesh.size, *rest), node.meta["spec"].dtype.torch, job.device))
        return distribute_job(self._graph, Surroundings(ranks, self._store.layouts, feeds, job.device, job.settings.mixed_precision))


def _feed(lane: Lane, micro: list[list[torch.Tensor]]) -> None:
    for places, tensors in zip(lane.feeds, micro):
        for i, tensor in enumerate(tensors):
            np.copyto(places[i], tensor.numpy())


def _pieces(sent: list[list[list[np.ndarray] | None]]) -> tuple[Pieces, ...]:
    """For each result what every device left in its lane: the results of its micro-batches, put together along the first dim."""
    return tuple([_joined(parts) for parts in of_devices] for of_devices in zip(*sent))


def _joined(parts: list[np.ndarray] | None) -> np.ndarray:
    assert parts is not None
    return parts[0].copy() if len(parts) == 1 else np.concatenate(parts)
