"""Cluster: ops that only move memory, as one call of a program. It keeps the aten ops that it stands for, and says
nothing of kernels: those belong to the executor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from oneflow.engine.program.digest import digest_of
from oneflow.engine.program.serialize import Rows, graph_of, rows_of


@dataclass(frozen=True)
class Spec:
    """How a tensor lies in memory: what a kernel is compiled for."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    device: str


@dataclass(frozen=True)
class Cluster:
    """The ops of a cluster as plain data: ``rows`` as functions of values, for a compiler; ``reference`` the same in
    place where nothing reads what is written over. ``specs`` are those of its inputs where they are known before a step
    runs."""

    rows: Rows
    reference: Rows
    specs: tuple[Spec, ...] | None

    def digest(self, specs: Sequence[Spec], *others: Any) -> str:
        """By what its kernel for such inputs is known."""
        return digest_of((self.rows, tuple(specs), *others))

    def graph(self) -> fx.Graph:
        """Its ops, for a compiler."""
        return graph_of(self.rows)

    def ops(self) -> list[str]:
        """The names of its ops, in order."""
        return [str(node.target) for node in self.graph().nodes if isinstance(node.target, torch._ops.OpOverload)]


def make_cluster(graph: fx.Graph, reference: fx.Graph, specs: Sequence[Spec] | None) -> Cluster:
    """A cluster of these ops, whichever nodes they were."""
    return Cluster(rows_of(graph), rows_of(reference), None if specs is None else tuple(specs))


def call_cluster(cluster: Any, *inputs: Tensor) -> tuple[Tensor, ...]:
    """What a program calls. The executor puts in the place of ``cluster`` what runs it."""
    return cluster(*inputs)


def spec_of(tensor: Tensor) -> Spec:
    """How a tensor lies."""
    return Spec(tuple(tensor.shape), tensor.stride(), str(tensor.dtype).removeprefix("torch."), tensor.device.type)
