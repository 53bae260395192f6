"""Variables are updated in the midst of the backward pass, as soon as nothing reads them any more: their gradients are still in the cache, and
their memory is free for what comes. A large gradient that is a matrix product is not even made: its variable is updated some rows at a time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from oneflow.compiler.cost import nbytes
from oneflow.compiler.inplace import Memory, memories
from oneflow.compiler.update import updating
from oneflow.ops import update

aten = torch.ops.aten
BYTES = 8 * 2**20  # of gradients that are updated together
ROWS_BYTES = 8 * 2**20  # of the rows of a product that are made at a time


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
    gradients: list[fx.Node] = call.args[1]  # type: ignore[assignment]
    products = [i for i in order if _is_large_product(call, gradients[i])]
    for i in products:
        _insert_rows(graph, call, i, ready[i])
    piece: list[int] = []
    size = 0
    for i in [i for i in order if i not in products]:
        piece.append(i)
        size += nbytes(gradients[i].meta["val"])
        if size >= BYTES:
            _insert(graph, call, piece, ready[i])
            piece, size = [], 0
    if piece:
        _insert(graph, call, piece, ready[piece[-1]])
    graph.erase_node(call)
    for i in products:
        graph.erase_node(gradients[i])


def _is_large_product(call: fx.Node, gradient: fx.Node) -> bool:
    """Whether a gradient is a matrix product that only this update reads, of more rows than are made at a time."""
    is_own = gradient.target is aten.mm.default and list(gradient.users) == [call]
    return is_own and call.target in update.BY_ELEMENT and nbytes(gradient.meta["val"]) >= 2 * ROWS_BYTES


def _insert(graph: fx.Graph, call: fx.Node, piece: list[int], behind: fx.Node) -> None:
    _call(graph, call, piece, behind, call.target, _columns(call, piece), call.kwargs)


def _insert_rows(graph: fx.Graph, call: fx.Node, i: int, behind: fx.Node) -> None:
    params, (product,), *others = _columns(call, [i])
    rows = max(1, ROWS_BYTES * product.meta["val"].shape[0] // nbytes(product.meta["val"]))
    kwargs = {**call.kwargs, "function": call.target, "rows": rows}
    _call(graph, call, [i], behind, update.by_rows, (params, *product.args, *others), kwargs)


def _columns(call: fx.Node, piece: list[int]) -> tuple[Any, ...]:
    return tuple([arg[i] for i in piece] if isinstance(arg, (list, tuple)) else arg for arg in call.args)


def _call(
    graph: fx.Graph, call: fx.Node, piece: list[int], behind: fx.Node, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Puts a part of an update behind a node, or at the end."""
    with graph.inserting_before(behind) if behind.op == "output" else graph.inserting_after(behind):
        made = graph.call_function(target, args, kwargs)
    made.meta = {**call.meta, **updating(call.meta["optimizer"], [call.meta["updates"][i] for i in piece])}
