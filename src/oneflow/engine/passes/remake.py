"""Large results of layer norms are made again for the backward pass, in which only the gradient of a weight reads them.

What the norm was given is kept anyway, for its own gradient. One more pass over it costs about a hundredth of a
transformer's step; the results of all its norms are a tenth of what such a step holds.
"""

from __future__ import annotations

import operator

import torch
from torch import fx

from oneflow.engine.capture.cleanup import changed_by
from oneflow.engine.ir.nodes import argument
from oneflow.engine.program.aliases import Memory, memories
from oneflow.engine.program.notes import local_note, tensor

aten = torch.ops.aten
BYTES = 2**20


def remake_norms(graph: fx.Graph) -> None:
    """Has the one product of the backward pass that reads the result of a layer norm read one that is made again just
    before.

    Relies on a section of forward and backward pass. Leaves the same values, bit by bit; what is read again was kept
    until then without it.
    """
    memory = memories(graph)
    readers: dict[Memory, list[fx.Node]] = {}
    for node in graph.nodes:
        for used in node.all_input_nodes:
            readers.setdefault(memory[used], []).append(node)
    written = {memory[used] for node in graph.nodes if node.op == "call_function" for used in changed_by(node)}
    for norm in [node for node in graph.nodes if node.target is aten.native_layer_norm.default]:
        result = next((user for user in norm.users if user.target is operator.getitem and user.args[1] == 0), None)
        if (
            result is None
            or _bytes(result) < BYTES
            or not written.isdisjoint([memory[result], memory[argument(norm, 0)]])
        ):
            continue
        found = [
            node for node in readers[memory[result]] if memory[node] != memory[result]
        ]  # views look, and do not read
        late = [node for node in found if node.op != "call_function" or local_note(node).section == "backward"]
        if len(late) == 1 and late[0].target is aten.mm.default and late[0] < readers[memory[argument(norm, 0)]][-1]:
            used = next(one for one in late[0].all_input_nodes if memory[one] == memory[result])
            _read_anew(graph, norm, result, late[0], used)


def _bytes(node: fx.Node) -> int:
    made = tensor(node)
    return 0 if made is None else made.numel() * made.itemsize


def _read_anew(graph: fx.Graph, norm: fx.Node, result: fx.Node, product: fx.Node, used: fx.Node) -> None:
    """Makes the norm and the views through which a product reads it again before the product."""
    chain = [used]
    while chain[0] is not result:
        chain.insert(0, argument(chain[0], 0))
    new: dict[fx.Node, fx.Node] = {}
    with graph.inserting_before(product):
        for node in (norm, *chain):
            new[node] = graph.node_copy(node, lambda old: new.get(old, old))
    product.replace_input_with(used, new[used])
    for node in reversed(chain):
        if not node.users:
            graph.erase_node(node)
