"""Rewrites of the logical graph that keep every value and make the step cheaper."""

from __future__ import annotations

from torch import fx

from oneflow.engine.ir.graph import Graph
from oneflow.engine.ir.notes import change_op_note, op_note
from oneflow.engine.ops import pool, unary

_MAX_POOLS = (pool.max_pool1d, pool.max_pool2d, pool.max_pool3d)


def rewritten(graph: Graph) -> Graph:
    """A copy of the graph with all rewrites done.

    Relies on a graph as a trace leaves it. Leaves ops of the same values, those that something outside asks for under
    their names.
    """
    graph = graph.copy()
    pool_before_relu(graph)
    return graph


def pool_before_relu(graph: Graph) -> None:
    """max_pool(relu(x)) becomes relu(max_pool(x)): the same values and gradients, on a fraction of the elements.

    The maximum of a window commutes with relu; where it is not positive both orders let no gradient through.
    """
    asked_for = graph.named_nodes()
    for node in list(graph.body.nodes):
        if node.target not in _MAX_POOLS or node in asked_for:
            continue
        relu = node.args[0]
        if relu.target is unary.relu and len(relu.users) == 1 and relu not in asked_for:
            _swap(relu, node)


def _swap(relu: fx.Node, pooled: fx.Node) -> None:
    """Moves ``relu`` behind ``pooled``, its only user. Each node keeps its own name and line."""
    pooled.args = (relu.args[0], *pooled.args[1:])
    pooled.replace_all_uses_with(relu)
    relu.args = (pooled,)
    change_op_note(relu, spec=op_note(pooled).spec)
    pooled.append(relu)
