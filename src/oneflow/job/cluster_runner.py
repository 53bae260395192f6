"""Compiles a job for all ranks of a cluster and runs its steps there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import fx

from oneflow.compiler.distribute import Surroundings, distribute_job
from oneflow.compiler.infer import layout_of
from oneflow.compiler.joint import Like
from oneflow.compiler.pipeline import feed_nodes
from oneflow.job.pace import Pace
from oneflow.job.runner import cut, tell_precision
from oneflow.runtime.driver import Driver, RemoteVariables, Whole

if TYPE_CHECKING:
    from oneflow.job.job import Job

Arrays = tuple[np.ndarray, ...]


class _Target(NamedTuple):
    """Where a block of an input goes."""

    block: tuple[slice, ...]
    place: np.ndarray


class _Result(NamedTuple):
    """How a result is put together, and for each micro-batch where the ranks leave their parts."""

    whole: Whole
    parts: list[dict[int, np.ndarray]]


class ClusterRunner:
    """One compiled program of a job, loaded on every rank."""

    def __init__(self, job: Job, inputs: list[torch.Tensor]) -> None:
        graph, session = job.graph, job.session
        assert graph is not None and session.driver is not None
        tell_precision(job)
        self._job = job
        self._driver: Driver = session.driver
        self._micro = job.settings.micro_batches
        self._batch_axes = [node.meta["batch_axis"] for node in graph.inputs]
        store: RemoteVariables = session.store  # type: ignore[assignment]
        assigned = distribute_job(
            graph, Surroundings(self._driver.ranks, store.layouts, self._examples(inputs), job.device, job.settings.mixed_precision)
        )
        loaded = self._driver.load(assigned, len(inputs), self._micro, [name for name in store if name in store.layouts])
        self._loaded = [loaded] * self._driver.world.size
        self._targets = [self._targets_of(assigned.arguments["feed", i], i) for i in range(len(inputs))]
        self._results = self._collected(assigned.outputs.results, [lane.results for lane in loaded.lanes])
        self._watched = self._collected(assigned.outputs.watched, [lane.watched for lane in loaded.lanes])
        self._pace = Pace(job, assigned)

    def _examples(self, inputs: list[torch.Tensor]) -> list[Like]:
        job, graph = self._job, self._job.graph
        assert graph is not None
        parts = [cut(t, axis, self._micro)[0] for t, axis in zip(inputs, self._batch_axes)]
        specs = [node.meta["spec"] for node in feed_nodes(graph)[len(parts) :]]
        return [Like(tuple(t.shape), t.dtype, job.device) for t in parts] + [Like(s.shape, s.dtype.torch, job.device) for s in specs]

    def _targets_of(self, node: fx.Node, number: int) -> list[list[_Target]]:
        """For each micro-batch, which blocks of an input go where."""
        lanes = self._loaded[0].lanes
        blocks = {rank: layout_of(node).block(node.meta["val"].shape, rank) for rank in range(len(lanes))}
        return [
            [_Target(block, lanes[rank].feeds[micro][number]) for rank, block in blocks.items() if block is not None]
            for micro in range(self._micro)
        ]

    def _collected(self, nodes: Sequence[fx.Node], sent: list[list[list[np.ndarray] | None]]) -> list[_Result]:
        results = []
        for i, node in enumerate(nodes):
            of_ranks = {rank: arrays for rank, lane in enumerate(sent) if (arrays := lane[i]) is not None}
            parts = [{rank: arrays[micro] for rank, arrays in of_ranks.items()} for micro in range(self._micro)]
            results.append(_Result(Whole(layout_of(node), node.meta["val"].shape), parts))
        return results

    def step(self, inputs: list[torch.Tensor]) -> tuple[Arrays, Arrays]:
        """One call of the job."""
        with self._driver.turn():
            self._feed(inputs)
            self._pace.advance(self._driver.step(self._loaded, self._pace.step(), self._job.name))
            return tuple(map(_joined, self._results)), tuple(map(_joined, self._watched))

    def _feed(self, inputs: list[torch.Tensor]) -> None:
        for tensor, axis, targets in zip(inputs, self._batch_axes, self._targets):
            for part, own in zip(cut(tensor, axis, self._micro), targets):
                array = part.numpy()
                for target in own:
                    np.copyto(target.place, array[target.block])


def _joined(result: _Result) -> np.ndarray:
    """A whole result: each micro-batch put together from its parts, and all of them along the first dim."""
    wholes = [result.whole.assembled(parts) for parts in result.parts]
    return wholes[0] if len(wholes) == 1 else np.concatenate(wholes)
