"""What of a graph follows the batch: found by tracing it once more with twice the batch and comparing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from oneflow.engine.capture.forward_graph import Captured, describe_node
from oneflow.engine.core.errors import UnsupportedError
from oneflow.engine.onnx.aten.builder import Times

FACTOR = 2


@dataclass(frozen=True)
class Pairing:
    """The nodes of a graph and those of the same one traced with ``FACTOR`` times the batch, whose size was
    ``size``."""

    size: int
    other: dict[fx.Node, fx.Node]

    def dims(self, node: fx.Node, index: int | None) -> frozenset[int]:
        """The dims of a node's result that follow the batch."""
        mine, theirs = (n.meta["val"] if index is None else n.meta["val"][index] for n in (node, self.other[node]))
        shape, doubled = tuple(mine.shape), tuple(theirs.shape)
        if len(shape) != len(doubled) or any(a != b and not self._follows(a, b) for a, b in zip(shape, doubled)):
            raise UnsupportedError(
                f"{describe_node(node)}: dynamic_batch: with {FACTOR} times the batch the shape of its result goes "
                f"from {shape} to {doubled}; "
                "a dim can follow the batch only as a whole multiple of it. Export with dynamic_batch=False"
            )
        return frozenset(dim for dim, (a, b) in enumerate(zip(shape, doubled)) if a != b)

    def _follows(self, number: int, doubled: int) -> bool:
        """Whether it is a whole multiple of the batch. Of n // 2 and its like two sizes do not tell how it is rounded
        for others."""
        return doubled == number * FACTOR and number % self.size == 0

    def argument(self, mine: Any, theirs: Any) -> Any:
        """An argument with ``Times`` for the numbers that follow the batch; nodes stay nodes."""
        if isinstance(mine, (list, tuple)):
            if len(mine) != len(theirs):
                raise UnsupportedError(
                    f"dynamic_batch: how many values it takes depends on the batch: {mine}, then {theirs}"
                )
            return [self.argument(a, b) for a, b in zip(mine, theirs)]
        if isinstance(mine, fx.Node) or mine == theirs or (mine != mine and theirs != theirs):
            return mine
        if isinstance(mine, int) and self._follows(mine, theirs):
            return Times(mine // self.size)
        raise UnsupportedError(
            f"dynamic_batch: with {FACTOR} times the batch an argument goes from {mine} to {theirs}; "
            "it can follow the batch only as a whole multiple of it. Export with dynamic_batch=False"
        )


def paired(captured: Captured, doubled: Captured, size: int) -> Pairing:
    """Both graphs node by node. They must have the same ops on the same values, so that one file can hold them for
    every batch."""
    nodes, others = list(captured.graph.nodes), list(doubled.graph.nodes)
    for node, other in zip(nodes, others):
        _require_alike(node, other, captured.title)
    if len(nodes) != len(others):
        raise UnsupportedError(
            f"dynamic_batch: {captured.title} takes {len(nodes)} steps, with {FACTOR} times the batch {len(others)}"
        )
    pairing = Pairing(size, dict(zip(nodes, others)))
    for node, other in pairing.other.items():
        _require_same_inputs(node, other, pairing)
    for name, value in captured.attributes.items():
        _require_same_value(name, value, doubled.attributes[name])
    return pairing


def _require_alike(node: fx.Node, other: fx.Node, title: str) -> None:
    if (node.op, str(node.target)) != (other.op, str(other.target)):
        raise UnsupportedError(
            f"{describe_node(node)}: dynamic_batch: {title} takes other steps with {FACTOR} times the batch, first "
            f"{other.target} for {node.target}; write it without looking at the batch size, or export with dynamic_batch=False"
        )


def _require_same_inputs(node: fx.Node, other: fx.Node, pairing: Pairing) -> None:
    if [pairing.other[n] for n in node.all_input_nodes] != other.all_input_nodes:
        raise UnsupportedError(
            f"{describe_node(node)}: dynamic_batch: it takes other values with {FACTOR} times the batch"
        )


def _require_same_value(name: str, value: torch.Tensor, other: torch.Tensor) -> None:
    if value.shape != other.shape or not torch.equal(value, other):
        raise UnsupportedError(
            f"dynamic_batch: a tensor made from numbers ({value.flatten()[:5].tolist()} ...) changes with the batch; "
            "make it by torch.arange, full or *_like, or export with dynamic_batch=False"
        )
