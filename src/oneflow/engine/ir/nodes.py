"""What fx nodes hold, free of fx's wide types for it."""

from __future__ import annotations

from typing import Any

from torch import fx

from oneflow.engine.ops.row import Op


def argument(node: fx.Node, index: int) -> Any:
    """A node's argument by its place."""
    return node.args[index]


def add_call(graph: fx.Graph, function: Any, *args: Any, **kwargs: Any) -> fx.Node:
    """A new call in a graph, at the place where nodes are being inserted."""
    return graph.call_function(function, args, kwargs)


def attribute(node: fx.Node, name: str) -> Any:
    """A node's argument by its name."""
    return node.kwargs[name]


def row_of(node: fx.Node) -> Op:
    """The op row that a node of a logical graph calls."""
    row = node.target
    assert isinstance(row, Op), f"{node} of a logical graph calls {row!r}, which is no op row"
    return row
