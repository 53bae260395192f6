"""Compiles a job for the ranks of a cluster and runs its steps there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from oneflow.compiler.distribute import Surroundings, distribute_job
from oneflow.compiler.infer import layout_of
from oneflow.compiler.joint import Like
from oneflow.compiler.pipeline import feed_nodes
from oneflow.compiler.rank_program import lower_job
from oneflow.job.pace import Pace
from oneflow.job.runner import cut, tell_precision
from oneflow.runtime.driver import Driver, RemoteVariables, Whole
from oneflow.runtime.executor import Results

if TYPE_CHECKING:
    from oneflow.job.job import Job


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
        self._assigned = distribute_job(
            graph, Surroundings(self._driver.ranks, store.layouts, self._examples(inputs), job.device, job.settings.mixed_precision)
        )
        self._blocks = [self._blocks_of(rank, len(inputs)) for rank in range(self._driver.world.size)]
        outputs = self._assigned.outputs
        self._results = [Whole(layout_of(node), tuple(node.meta["val"].shape)) for node in outputs.results]
        self._watched = [Whole(layout_of(node), tuple(node.meta["val"].shape)) for node in outputs.watched]
        programs = [lower_job(self._assigned, rank) for rank in range(self._driver.world.size)]
        self._number = self._driver.load(programs, [name for name in store if name in store.layouts])
        self._pace = Pace(job, self._assigned)

    def _examples(self, inputs: list[torch.Tensor]) -> list[Like]:
        job, graph = self._job, self._job.graph
        assert graph is not None
        parts = [cut(t, axis, self._micro)[0] for t, axis in zip(inputs, self._batch_axes)]
        specs = [node.meta["spec"] for node in feed_nodes(graph)[len(parts) :]]
        return [Like(tuple(t.shape), t.dtype, job.device) for t in parts] + [Like(s.shape, s.dtype.torch, job.device) for s in specs]

    def step(self, inputs: list[torch.Tensor]) -> Results:
        """One call of the job."""
        steps = self._pace.steps(self._fed(inputs))
        outcomes = self._driver.step([self._number] * len(steps), steps, self._job.name)
        self._pace.advance(outcomes)
        return (
            tuple(self._joined([outcome.results[i] for outcome in outcomes], whole) for i, whole in enumerate(self._results)),
            tuple(self._joined([outcome.watched[i] for outcome in outcomes], whole) for i, whole in enumerate(self._watched)),
        )

    def _blocks_of(self, rank: int, inputs: int) -> dict[int, tuple[slice, ...]]:
        """Which block of each input of a micro-batch a rank is fed."""
        nodes = [self._assigned.arguments["feed", i] for i in range(inputs)]
        found = {i: layout_of(node).block(node.meta["val"].shape, rank) for i, node in enumerate(nodes)}
        return {i: block for i, block in found.items() if block is not None}

    def _fed(self, inputs: list[torch.Tensor]) -> list[list[dict[int, torch.Tensor]]]:
        """For each rank, its part of every input of every micro-batch."""
        cuts = [cut(t, axis, self._micro) for t, axis in zip(inputs, self._batch_axes)]
        return [[{i: cuts[i][micro][block] for i, block in blocks.items()} for micro in range(self._micro)] for blocks in self._blocks]

    def _joined(self, sent: list[list[torch.Tensor] | None], whole: Whole) -> torch.Tensor:
        """A whole result: each micro-batch put together from its parts, and all of them along the first dim."""
        parts = {rank: values for rank, values in enumerate(sent) if values is not None}
        wholes = [whole.assembled({rank: values[i] for rank, values in parts.items()}) for i in range(self._micro)]
        return wholes[0] if len(wholes) == 1 else torch.cat(wholes)
