"""The clusters of a program as they run: on the aten ops that they stand for until there are kernels, from then on by
these.

In the tier "wait" the first step waits for them. In "later" steps begin at once, kernels are compiled beside them, and
when all of a program are there all are taken over between two steps: of several ranks by all between the same two. No
step runs by kernels on some ranks and by ops on others. Workers say with each answer whether they have theirs, and
their driver with each step which it is: where ranks run different programs of a mirrored job, one that has its kernels
runs on ops beside one that has not. Ranks without a driver, which all run one program, agree before each step of it
until they have taken over.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import oneflow.engine.collective as collective
from oneflow.engine.passes.clusters.cluster import Cluster, spec_of
from oneflow.engine.passes.clusters.kernel_store import KernelStore, StoreError
from oneflow.engine.passes.clusters.kernel_workers import KernelWorkers
from oneflow.engine.passes.clusters.kernels import Kernel, Request, loaded, matching
from oneflow.engine.passes.update_cluster import NormCluster, UpdateCluster
from oneflow.engine.program.program import Fusion
from oneflow.engine.program.serialize import graph_of
from oneflow.engine.step.codegen import Bind, generate
from oneflow.engine.step.running_updates import RunningNorms, RunningUpdate, running

_NICE = 19


class RunningClusters:
    """What one executor has behind the clusters of its program ``job``. ``begin_step`` is called before every step."""

    def __init__(self, job: str, fusion: Fusion) -> None:
        self.taken_at: int | None = None  # the first step by kernels
        self._by_kernels = False
        self._job, self._fusion = job, fusion
        self._clusters: dict[Any, RunningCluster] = {}
        self._small: dict[Any, RunningCluster] = {}
        self._updates: dict[int, RunningUpdate | RunningNorms] = {}
        self._is_open = False
        self._kernels: dict[str, Kernel | None] = {}
        self._turn = threading.RLock()
        self._store: KernelStore | None = None
        self._workers: KernelWorkers | None = None
        self._asked: dict[str, str | None] = {}  # what failed, None as long as it is not known

    def _open(self) -> None:
        if self._is_open:
            return
        self._is_open = True
        try:
            self._store = KernelStore()
        except StoreError as error:
            warnings.warn(f"{self._job!r} runs without kernels of clusters: {error}", stacklevel=2)
            return
        waits = self._fusion.tier == "wait"
        self._workers = KernelWorkers(self._store, min(2, os.cpu_count() or 1) if waits else 1, 0 if waits else _NICE)

    def bound(self, others: Bind) -> Bind:
        """What code runs with in the place of a constant or function: of a cluster what runs it, of anything else what
        ``others`` say."""

        def bind(thing: Any) -> Any:
            if isinstance(thing, Cluster):
                return self._of(thing)
            return self._update_of(thing) if isinstance(thing, (UpdateCluster, NormCluster)) else others(thing)

        return bind

    def _update_of(self, cluster: UpdateCluster | NormCluster) -> RunningUpdate | RunningNorms:
        if id(cluster) not in self._updates:
            self._updates[id(cluster)] = running(cluster, self._piece)
            if not self._updates[id(cluster)].is_met:
                self._open()
        return self._updates[id(cluster)]

    def _piece(self, cluster: Cluster, size: int, is_small: bool) -> RunningCluster:
        """What runs a cluster on vectors of a size, small ones by the ops."""
        of_their_size = self._small if is_small else self._clusters
        with self._turn:
            if (id(cluster), size) not in of_their_size:
                self._open()
                of_their_size[id(cluster), size] = RunningCluster(
                    cluster, None if is_small or self._store is None else self._meet
                )
            return of_their_size[id(cluster), size]

    def _of(self, cluster: Cluster) -> RunningCluster:
        self._open()
        if id(cluster) not in self._clusters:
            self._clusters[id(cluster)] = RunningCluster(cluster, None if self._store is None else self._meet)
        return self._clusters[id(cluster)]

    # -------------------------------------------------------------- steps

    def begin_step(self, number: int, by_kernels: bool | None = None) -> None:
        """Has a step run by kernels or by ops, as a driver says. None where there is no driver, and all ranks come here
        before the same steps: they agree when to take kernels over, and stay with them."""
        if self._by_kernels and by_kernels is not False:
            return
        with self._turn:
            if by_kernels is None and not self._by_kernels:
                by_kernels = self._fusion.tier == "wait" or self._agreed(self.are_ready())
            if by_kernels is not None and by_kernels != self._by_kernels:
                self._take_over(number) if by_kernels else self._let_go()

    def wait(self) -> None:
        """Waits until all that was asked for is compiled, as far as that is possible: the next step takes it over."""
        with self._turn:
            self.are_ready()
            self._finish()

    def close(self) -> None:
        """Ends the processes that compile."""
        if self._workers is not None:
            self._workers.close()

    def _agreed(self, is_ready: bool) -> bool:
        ranks = self._fusion.ranks
        return is_ready if len(ranks) == 1 else bool(collective.finite_over(torch.tensor(is_ready), ranks, "cpu"))

    def are_ready(self) -> bool:
        """Whether all that the clusters of this rank want is there, or will never be. What is wanted for the first time
        is asked for."""
        if self._workers is None or self._fusion.tier == "wait" or self.taken_at is not None:
            return True
        with self._turn:
            wanted = [one.request for one in self._clusters.values()]
            self._ask([request for request in wanted if request is not None])
            self._note(0)
            return (
                None not in wanted
                and None not in self._asked.values()
                and all(update.is_met for update in self._updates.values())
            )

    # -------------------------------------------------------------- kernels

    def _meet(self, cluster: RunningCluster) -> None:
        """A cluster has met its first inputs, and wants a kernel for them."""
        with self._turn:
            if self._fusion.tier == "wait":
                self._finish()
                self._give(cluster)

    def _ask(self, requests: list[Request]) -> None:
        """Has compiled what is wanted for the first time and is not in the store."""
        assert self._store is not None and self._workers is not None
        missing = []
        for request in requests:
            if request.digest not in self._asked:
                is_there = self._store.get(request.digest) is not None
                self._asked[request.digest] = "" if is_there else None
                missing += [] if is_there else [request]
        if missing:
            self._workers.ask(missing)

    def _note(self, seconds: float | None) -> None:
        assert self._workers is not None
        for answer in self._workers.answers(seconds):
            self._asked[answer.request.digest] = answer.failed
            if answer.failed:
                warnings.warn(
                    f"{self._job!r} runs a cluster on torch's own ops, its kernel could not be compiled: "
                    f"{answer.failed}",
                    stacklevel=2,
                )

    def _finish(self) -> None:
        """Waits for all kernels that are wanted by now."""
        if self._workers is None:
            return
        self._ask([one.request for one in self._clusters.values() if one.request is not None])
        while None in self._asked.values():
            self._note(None)

    def _take_over(self, number: int) -> None:
        if self._fusion.tier == "wait":
            self._finish()
        for cluster in self._clusters.values():
            self._give(cluster)
        self.taken_at = number if self.taken_at is None else self.taken_at
        self._by_kernels = True

    def _let_go(self) -> None:
        for cluster in self._clusters.values():
            cluster.let_go()
        self._by_kernels = False

    def _give(self, cluster: RunningCluster) -> None:
        request = cluster.request
        if request is None or self._store is None:
            return
        if request.digest not in self._kernels:
            self._kernels[request.digest] = (
                self._loaded(request, self._store) if self._asked.get(request.digest) == "" else None
            )
        cluster.take(self._kernels[request.digest])

    def _loaded(self, request: Request, store: KernelStore) -> Kernel | None:
        payload = store.get(request.digest)
        try:
            return None if payload is None else loaded(payload, store)
        except OSError as error:
            warnings.warn(
                f"{self._job!r} runs a cluster on torch's own ops, its kernel cannot be loaded: {error}", stacklevel=2
            )
            return None


class RunningCluster:
    """One cluster. ``request`` is the kernel that it wants: for inputs as they are expected to lie, or as they did when
    it was first called."""

    def __init__(self, cluster: Cluster, meet: Callable[[RunningCluster], None] | None) -> None:
        self.request = None if cluster.specs is None else Request(cluster, cluster.specs, torch.get_num_threads())
        self._cluster, self._meet = cluster, meet
        self._reference: Kernel = generate(graph_of(cluster.reference), "cluster").call
        self._kernel: Kernel | None = None
        self._fits: Callable[[tuple[Tensor, ...]], bool] = lambda tensors: False

    def take(self, kernel: Kernel | None) -> None:
        """Runs by a kernel from now on, where inputs lie as it wants them; None for none."""
        assert self.request is not None
        self._kernel, self._fits = kernel, matching(self.request.specs)

    def let_go(self) -> None:
        """Runs on its ops from now on."""
        self._kernel = None

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        if self._meet is not None:
            self._first(inputs, self._meet)
        kernel = self._kernel
        if kernel is not None and self._fits(inputs):
            return kernel(*inputs)
        return self._reference(*inputs)

    def _first(self, inputs: tuple[Tensor, ...], meet: Callable[[RunningCluster], Any]) -> None:
        self._meet = None
        met = Request(self._cluster, tuple(map(spec_of, inputs)), torch.get_num_threads())
        if met != self.request:
            self._kernel, self.request = None, met
            meet(self)

    def __repr__(self) -> str:
        return f"cluster of {', '.join(self._cluster.ops())}"
