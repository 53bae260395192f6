"""Compiles a job for the ranks of a cluster and runs its steps there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from oneflow.compiler.distribute import Surroundings, distribute_job
from oneflow.compiler.infer import layout_of
from oneflow.compiler.joint import Like
from oneflow.compiler.mesh import Layout
from oneflow.compiler.pipeline import feed_nodes
from oneflow.compiler.rank_program import lower_job
from oneflow.job.runner import cut, tell_precision
from oneflow.runtime.driver import Driver, RemoteVariables, assembled, parts_of
from oneflow.runtime.executor import Counter, Results
from oneflow.runtime.rank_executor import Step, StepResult

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
        self._assigned = distribute_job(graph, Surroundings(self._driver.ranks, store.layouts, self._examples(inputs), job.device, job.settings.mixed_precision))
        self._feeds = [layout_of(self._assigned.arguments["feed", i]) for i in range(len(inputs))]
        outputs = self._assigned.outputs
        self._results = [(layout_of(node), tuple(node.meta["val"].shape)) for node in outputs.results]
        self._watched = [(layout_of(node), tuple(node.meta["val"].shape)) for node in outputs.watched]
        programs = [lower_job(self._assigned, rank) for rank in range(self._driver.world.size)]
        self._number = self._driver.load(programs, [name for name in store if name in store.layouts])
        self._counter = Counter(store.tensors[job.counter_name] if graph.is_train else job.calls)
        self._rates = [group.rate for group in self._assigned.groups if id(group.optimizer) not in self._assigned.custom_rates]
        self._scale_state = self._find_scale(store)

    def _examples(self, inputs: list[torch.Tensor]) -> list[Like]:
        job, graph = self._job, self._job.graph
        assert graph is not None
        parts = [cut(t, axis, self._micro)[0] for t, axis in zip(inputs, self._batch_axes)]
        specs = [node.meta["spec"] for node in feed_nodes(graph)[len(parts) :]]
        return [Like(tuple(t.shape), t.dtype, job.device) for t in parts] + [Like(s.shape, s.dtype.torch, job.device) for s in specs]

    def _find_scale(self, store: RemoteVariables) -> tuple[torch.Tensor, torch.Tensor] | None:
        training = self._job.graph.training  # type: ignore[union-attr]
        if training is None or not training.loss_scale.is_dynamic:
            return None
        name, counter = self._job.loss_scale_names
        return store.tensors[name], store.tensors[counter]

    def step(self, inputs: list[torch.Tensor]) -> Results:
        """One call of the job."""
        number = self._counter.value()
        rates = tuple(rate(number) for rate in self._rates)
        scale = self._scale()
        steps = [Step(number, rates, scale, fed) for fed in self._fed(inputs)]
        outcomes = self._driver.step(self._number, steps, self._job.name)
        self._adjust_scale(all(outcome.is_finite for outcome in outcomes))
        self._counter.advance()
        return (
            tuple(self._joined(outcomes, i, "results", *of) for i, of in enumerate(self._results)),
            tuple(self._joined(outcomes, i, "watched", *of) for i, of in enumerate(self._watched)),
        )

    def _fed(self, inputs: list[torch.Tensor]) -> list[list[dict[int, torch.Tensor]]]:
        """For each rank, its part of every input of every micro-batch."""
        cuts = [cut(t, axis, self._micro) for t, axis in zip(inputs, self._batch_axes)]
        return [[self._part(rank, [c[i] for c in cuts]) for i in range(self._micro)] for rank in range(self._driver.world.size)]

    def _part(self, rank: int, inputs: list[torch.Tensor]) -> dict[int, torch.Tensor]:
        parts = {i: parts_of(tensor, layout, rank) for i, (tensor, layout) in enumerate(zip(inputs, self._feeds))}
        return {i: part for i, part in parts.items() if part is not None}

    def _joined(self, outcomes: list[StepResult], index: int, kind: str, layout: Layout, shape: tuple[int, ...]) -> torch.Tensor:
        """A whole result: each micro-batch put together from its parts, and all of them along the first dim."""
        sent = {rank: parts for rank, outcome in enumerate(outcomes) if (parts := getattr(outcome, kind)[index]) is not None}
        wholes = [assembled(layout, shape, {rank: parts[i] for rank, parts in sent.items()}) for i in range(self._micro)]
        return wholes[0] if len(wholes) == 1 else torch.cat(wholes)

    def _scale(self) -> float:
        training = self._job.graph.training  # type: ignore[union-attr]
        if self._scale_state is not None:
            return float(self._scale_state[0])
        return training.loss_scale.initial if training is not None else 1.0

    def _adjust_scale(self, is_finite: bool) -> None:
        if self._scale_state is not None:
            scale, good = self._job.graph.training.loss_scale.adjusted(float(self._scale_state[0]), int(self._scale_state[1]), is_finite)  # type: ignore[union-attr]
            self._scale_state[0].fill_(scale)
            self._scale_state[1].fill_(good)
