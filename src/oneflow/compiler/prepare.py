"""A predict job in two graphs: what depends on variables alone, computed when they change, and the step that reads it."""

from __future__ import annotations

from torch import fx

from oneflow.compiler.cleanup import drop_unused
from oneflow.compiler.folding import fold_batch_norms
from oneflow.compiler.packing import pack_convolutions
from oneflow.compiler.settled import Settled


def prepared(graph: fx.Graph, variables: list[fx.Node]) -> tuple[fx.Graph, list[fx.Node]] | None:
    """Takes from ``graph`` what can be computed once, or gives None if nothing can.

    The graph that does it is a function of all variables. What it gives are the values of the placeholders returned with it, which ``graph``
    has in place of the variables; a variable that the step reads itself is passed on.
    """
    settled = Settled(graph, variables)
    fold_batch_norms(graph, settled)
    pack_convolutions(graph, settled)
    drop_unused(graph)
    kept = [node for node in graph.nodes if node in settled and any(user not in settled for user in node.users)]
    if all(node.op == "placeholder" for node in kept):
        return None
    passed = [node for node in variables if node not in settled]
    return _split(graph, variables, settled, [*passed, *kept])


def _split(graph: fx.Graph, variables: list[fx.Node], settled: Settled, kept: list[fx.Node]) -> tuple[fx.Graph, list[fx.Node]]:
    first: fx.Graph = fx.Graph()
    copies = {node: first.node_copy(node) for node in variables}
    for node in graph.nodes:
        if node.op == "call_function" and node in settled:
            copies[node] = first.node_copy(node, copies.__getitem__)
    first.output(tuple(copies[node] for node in kept))
    return first, _read_as_arguments(graph, settled, kept, variables)


def _read_as_arguments(graph: fx.Graph, settled: Settled, kept: list[fx.Node], variables: list[fx.Node]) -> list[fx.Node]:
    """Makes the kept values placeholders of ``graph`` and takes away what made them."""
    arguments = [node if node.op == "placeholder" else _placeholder_for(graph, node, settled) for node in kept]
    moved = {*(node for node in graph.nodes if node in settled), *variables} - {*arguments}
    for node in reversed(list(graph.nodes)):
        if node in moved:
            graph.erase_node(node)
    return arguments


def _placeholder_for(graph: fx.Graph, node: fx.Node, settled: Settled) -> fx.Node:
    with graph.inserting_before(next(iter(graph.nodes))):
        argument: fx.Node = graph.placeholder("prepared")
    argument.meta = {key: value for key, value in node.meta.items() if key == "val"}
    node.replace_all_uses_with(argument, delete_user_cb=lambda user: user not in settled)
    return argument
