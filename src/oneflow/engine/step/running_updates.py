"""The clusters of the update as they run in tiers that compile: by the C extension where it has their sweeps; else by a
kernel for each size of a variable, small ones and those without a kernel by torch's ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from oneflow.engine.ops.updates import native_update
from oneflow.engine.ops.updates.update_recipes import Columns, Direction, OneSweep, Rows
from oneflow.engine.ops.updates.update_sweeps import Sweep
from oneflow.engine.passes.clusters.cluster import Cluster
from oneflow.engine.passes.clusters.find_clusters import BYTES
from oneflow.engine.passes.update_cluster import NormCluster, UpdateCluster, number_dtype

Piece = Callable[..., tuple[Tensor, ...]]
Pieces = Callable[[Cluster, int, bool], Piece]
"""What runs a cluster on vectors of a size, or of a small one."""


class _Running:
    """A cluster of the update. It ``is_met`` when it is known which kernels it wants: from the beginning if it needs
    none, else from its first call on."""

    def __init__(self, cluster: Any, pieces: Pieces) -> None:
        self._cluster = cluster
        self._pieces = pieces
        self._of = dict(zip(cluster.sweeps, cluster.pieces))
        self.is_met = cluster.dtype == "float32" and native_update.NAMES.issuperset(
            sweep.name for sweep in cluster.sweeps
        )

    def _run(self, sweep: Sweep, columns: Columns, rows: Rows) -> list[tuple[float, ...]]:
        """Runs a sweep, variable by variable."""
        found = []
        for place, tensors in enumerate(zip(*columns)):
            numbers = torch.tensor(rows[place if len(rows) > 1 else 0], dtype=number_dtype(tensors[0].dtype))
            vectors = [tensor.as_strided((tensor.numel(),), (1,)) for tensor in tensors]
            piece = self._pieces(self._of[sweep], tensors[0].numel(), tensors[0].nbytes < BYTES)
            found.append(tuple(map(float, piece(*vectors, numbers))))
        return found

    def ops(self) -> list[str]:
        """Those of the cluster."""
        return self._cluster.ops()

    def __repr__(self) -> str:
        return f"cluster of {', '.join(self.ops())}"


class RunningUpdate(_Running):
    """An update."""

    def __call__(self, columns: Columns, towards: Direction, lr: float, numbers: dict[str, Any]) -> None:
        cluster: UpdateCluster = self._cluster
        if native_update.takes(cluster.sweeps, columns) or not _is_swept(columns):
            cluster(columns, towards, lr, numbers)
        elif isinstance(cluster.recipe, OneSweep):
            large = [i for i, param in enumerate(columns[0]) if param.nbytes >= BYTES]
            if large:
                cluster.by(self._run, _of(columns, large), towards, lr, numbers)
            if small := [i for i in range(len(columns[0])) if i not in large]:
                cluster.by_ops(_of(columns, small), towards, lr, numbers)
        else:  # norms of all variables are exchanged together
            cluster.by(self._run, columns, towards, lr, numbers)
        self.is_met = True


class RunningNorms(_Running):
    """Norms of gradients."""

    def __call__(self, columns: Columns, towards: list[Direction]) -> list[Tensor]:
        cluster: NormCluster = self._cluster
        is_by_kernels = (
            cluster.norm_type == 2.0 and not native_update.takes(cluster.sweeps, columns) and _is_swept(columns)
        )
        found = cluster.by(self._run, columns, towards) if is_by_kernels else cluster(columns, towards)
        self.is_met = True
        return found


def running(cluster: UpdateCluster | NormCluster, pieces: Pieces) -> RunningUpdate | RunningNorms:
    """What runs a cluster of the update."""
    return RunningUpdate(cluster, pieces) if isinstance(cluster, UpdateCluster) else RunningNorms(cluster, pieces)


def _is_swept(columns: Columns) -> bool:
    """Whether variables, gradients and states can be gone through in the order of memory, by kernels for one dtype. A
    GPU is left to torch's ops: its numbers would have to be waited for."""
    for param, *others in zip(*columns):
        whole = [one for one in others if one.numel() == param.numel()]
        if param.device.type != "cpu" or not param.numel() or not native_update.is_dense(param):
            return False
        if not all(one.dtype is param.dtype and native_update.lies_as(one, param) for one in whole):
            return False
    return True


def _of(columns: Columns, places: list[int]) -> list[list[Tensor]]:
    return [[column[i] for i in places] for column in columns]
