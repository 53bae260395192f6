"""Compiles a job for one set of input shapes and feeds its steps."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import torch

from oneflow.compiler.pipeline import Target, compile_job, feed_nodes
from oneflow.core.errors import ArgumentError
from oneflow.optimizer.loss_scale import LossScale
from oneflow.runtime.executor import AccumulatingExecutor, Counter, Executor, Results, RunningScale
from oneflow.runtime.memory import keep_freed_memory

if TYPE_CHECKING:
    from oneflow.job.job import Job


class Runner:
    """One compiled program of a job with its sources."""

    def __init__(self, job: Job, inputs: list[torch.Tensor]) -> None:
        graph = job.graph
        assert graph is not None
        keep_freed_memory()
        self._job = job
        self._sources = [source for source, _ in graph.sources]
        self._micro = job.settings.micro_batches
        self._device = job.device
        self._fed_as_is = job.device.type == "cpu" and not self._sources
        tell_precision(job)
        for source in self._sources:
            source.start()  # reads while the job is compiled
        feeds = [_feed(t, node, self._micro) for t, node in zip(inputs, graph.inputs)]
        specs = [node.meta["spec"] for node in feed_nodes(graph)[len(feeds) :]]
        examples = feeds + [torch.empty(s.shape, dtype=s.dtype.torch, device=self._device) for s in specs]
        store = job.session.store
        if job.settings.deterministic and self._device.type == "cuda":  # never run where the tests run: no GPU there
            torch.backends.cudnn.deterministic = True
        # A job of dynamic inputs has a program for every shape it has met; each would hold the net once more.
        keeps_values = not job.signature.is_dynamic
        target = Target(store.tensors, [e.to(self._device) for e in examples], self._device, job.settings.mixed_precision, keeps_values)
        program = compile_job(graph, target)
        counter = Counter(store.tensors[job.counter_name] if graph.is_train else job.calls)
        if program.update is None:
            self.executor = Executor(program, store, self._device, counter)
        else:
            self.executor = AccumulatingExecutor(program, store, self._device, counter, running_scale(job))

    def step(self, inputs: list[torch.Tensor]) -> Results:
        """One call of the job."""
        if isinstance(self.executor, AccumulatingExecutor):
            return self.executor.run([], self._micro_feeds(inputs))
        return self.executor.run(self._feeds(inputs))

    def _feeds(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        if self._fed_as_is:
            return inputs
        fresh = [t for source in self._sources for t in source.next()]
        return [t.to(self._device, non_blocking=True) for t in (*inputs, *fresh)]

    def _micro_feeds(self, inputs: list[torch.Tensor]) -> list[list[torch.Tensor]]:
        """What each micro-batch gets: its cut of every input, and fresh data from the sources."""
        nodes = self._job.graph.inputs  # type: ignore[union-attr]
        cuts = [cut(t, node.meta["batch_axis"], self._micro) for t, node in zip(inputs, nodes)]
        return [self._feeds([cut[i] for cut in cuts]) for i in range(self._micro)]


def running_scale(job: Job) -> RunningScale:
    """The loss scale of a job, which for a dynamic one lies in variables of the session."""
    training = job.graph.training  # type: ignore[union-attr]
    loss_scale = training.loss_scale if training is not None else LossScale()
    tensors = job.session.store.tensors
    name, counter = job.loss_scale_names
    return RunningScale(loss_scale, (tensors[name], tensors[counter]) if loss_scale.is_dynamic else None)


def _feed(tensor: torch.Tensor, node: torch.fx.Node, micro: int) -> torch.Tensor:
    return cut(tensor, node.meta["batch_axis"], micro)[0]


def cut(tensor: torch.Tensor, axis: int | None, count: int) -> list[torch.Tensor]:
    if count == 1 or axis is None:
        return [tensor] * count
    if tensor.shape[axis] % count:
        raise ArgumentError(f"a batch of {tensor.shape[axis]} cannot be cut into {count} micro-batches")
    return list(tensor.chunk(count, axis))


def tell_precision(job: Job) -> None:
    if job.settings.mixed_precision and job.device.type == "cpu":
        print(f"oneflow: job {job.name!r} uses mixed precision on the CPU, as bfloat16: right, but slower than float32", file=sys.stderr)
