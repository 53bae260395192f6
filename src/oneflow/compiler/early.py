"""Variables are updated in the midst of the backward pass, as soon as nothing reads them any more: their gradients are still in the cache, and
their memory is free for what comes.
"""

from __future__ import annotations

from typing import Any

from torch import fx

from oneflow.compiler.cost import nbytes
from oneflow.compiler.inplace import Memory, memories
from oneflow.compiler.update import updating

BYTES = 8 * 2**20  # of gradients that are updated together


def update_early(graph: fx.Graph) -> None:
    """Cuts the updates at the end of a finished graph into pieces and moves each to where its gradients are there."""
    calls = [node for node in graph.nodes if is_update(node)]
    if not calls:
        return
    memory, place = memories(graph), {node: i for i, node in enumerate(graph.nodes)}
    touched = _last_touched(graph, memory, calls)
    for call in calls:
        columns = [arg for arg in call.args if isinstance(arg, (list, tuple))]
        _, gradients, *_ = columns
        if not all(isinstance(gradient, fx.Node) and "val" in gradient.meta for gradient in gradients):
            continue  # of values that are made of all gradients at once, such as clipped ones
        others = [arg for arg in call.args if isinstance(arg, fx.Node)]
        awaited = [[gradients[i], *others, *(touched[memory[column[i]]] for column in columns)] for i in range(len(gradients))]
        ready = [max(nodes, key=place.__getitem__) for nodes in awaited]
        _cut(graph, call, sorted(range(len(ready)), key=lambda i: place[ready[i]]), ready)


def is_update(node: fx.Node) -> bool:
    """Whether a node updates variables, given lists of them, of their gradients and of their state."""
    return node.op == "call_function" and "updates" in node.meta


def _last_touched(graph: fx.Graph, memory: dict[fx.Node, Memory], calls: list[fx.Node]) -> dict[Memory, fx.Node]:
    """The last node that touches each memory, updates aside."""
    found: dict[Memory, fx.Node] = {}
    for node in graph.nodes:
        if node not in calls:
            found.update({memory[used]: node for used in (node, *node.all_input_nodes)})
    return found


def _cut(graph: fx.Graph, call: fx.Node, order: list[int], ready: list[fx.Node]) -> None:
    piece: list[int] = []
    size = 0
    for i in order:
        piece.append(i)
        size += nbytes(call.args[1][i].meta["val"])  # type: ignore[index, union-attr]
        if size >= BYTES:
            _insert(graph, call, piece, ready[i])
            piece, size = [], 0
    if piece:
        _insert(graph, call, piece, ready[order[-1]])
    graph.erase_node(call)


def _insert(graph: fx.Graph, call: fx.Node, piece: list[int], behind: fx.Node) -> None:
    args: tuple[Any, ...] = tuple([arg[i] for i in piece] if isinstance(arg, (list, tuple)) else arg for arg in call.args)
    with graph.inserting_before(behind) if behind.op == "output" else graph.inserting_after(behind):
        made = graph.call_function(call.target, args, call.kwargs)  # type: ignore[arg-type]
    made.meta = {**call.meta, **updating(call.meta["optimizer"], [call.meta["updates"][i] for i in piece])}
