"""Which values of a graph share memory."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from oneflow.engine.ir.nodes import argument

aten = torch.ops.aten
Memory = tuple[Any, ...]
"""The node that made it, and which of its outputs where it has several."""


def memories(graph: fx.Graph) -> dict[fx.Node, Memory]:
    """Maps each node to its memory, named by the node that allocated it; views share it."""
    found: dict[fx.Node, Memory] = {}
    for node in graph.nodes:
        found[node] = _memory_of(node, found)
    return found


def _memory_of(node: fx.Node, found: dict[fx.Node, Memory]) -> Memory:
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        source = node.args[0] if node.target is operator.getitem else None
        if isinstance(source, fx.Node) and is_view(source.target):
            return found[source]
        return (node,) if source is None else (source, node.args[1])
    return found[argument(node, 0)] if is_view(node.target) else (node,)


def is_view(target: Any) -> bool:
    """Whether the result of an op may share memory with its first argument."""
    if target is aten._unsafe_view.default:
        return True
    if not isinstance(target, torch._ops.OpOverload):
        return False
    return any(value.alias_info is not None for value in target._schema.returns)
