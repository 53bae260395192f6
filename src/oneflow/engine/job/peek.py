"""Eager execution: the value of a blob while the body of its job runs."""

from __future__ import annotations

from dataclasses import replace

from torch import fx

from oneflow.engine.core.errors import UnsupportedError
from oneflow.engine.ir.graph import Graph
from oneflow.engine.ir.nodes import argument
from oneflow.engine.ir.notes import op_note
from oneflow.engine.ops.array import assign
from oneflow.engine.ops.norm import batch_norm_train


def graph_up_to(graph: Graph, node: fx.Node) -> Graph:
    """A predict job of what ``node`` is made of, which writes nothing: its result, and its count of rows if it has
    one."""
    count = op_note(node).count
    results = [node] if count is None else [node, count]
    own = replace(graph, results=results, losses=[], watches=[], is_train=False, training=None).copy()
    for other in reversed(list(own.body.nodes)):
        if other.target is assign:
            other.replace_all_uses_with(argument(other, 1))
            own.results = [argument(other, 1) if result is other else result for result in own.results]
        if other.target is batch_norm_train:
            other.update_kwarg("momentum", 1.0)  # its moving statistics stay where they are
        if other.op == "call_function" and not other.users and other not in own.results:
            own.body.erase_node(other)
    named = own.named_nodes()
    needed = {other for other in own.body.nodes if other.users or other in named}
    for source, nodes in own.sources:
        if any(other in needed for other in nodes):
            line = op_note(node).line
            raise UnsupportedError(
                f"{line}: {op_note(node).name!r} is made of what {source.name!r} reads, which comes when the step "
                f"runs, after the body; "
                "return the blob and look at it outside"
            )
        for other in nodes:
            own.body.erase_node(other)
    own.sources = []
    unused = {name: other for name, other in own.variables.items() if other not in needed}
    own.variables = {name: other for name, other in own.variables.items() if name not in unused}
    own.decls = {name: own.decls[name] for name in own.variables}
    for other in unused.values():
        own.body.erase_node(other)
    if own.step is not None and own.step not in needed:
        own.body.erase_node(own.step)
        own.step = None
    return own
