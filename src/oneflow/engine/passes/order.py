"""The order of products in the backward pass: a weight's gradient before that of the layer's input.

Autograd takes them the other way round, so what the layer was given is held until the gradient of its input, which is
as large, is there too: at the deepest place of the backward pass that is the peak of a step. A weight's gradient that
is there earlier is also sent to other ranks earlier.
"""

from __future__ import annotations

import torch
from torch import fx

from oneflow.engine.capture.cleanup import changes
from oneflow.engine.ir.nodes import argument
from oneflow.engine.program.aliases import memories
from oneflow.engine.program.notes import tensor

aten = torch.ops.aten


def weights_first(graph: fx.Graph) -> None:
    """Moves a product that frees more than it makes before the product of the same gradient that precedes it.

    Relies on a section. Leaves the same nodes; only products and what they look at change places, and nothing that
    writes or that other ranks meet is passed.
    """
    memory = memories(graph)
    last = {memory[used]: node for node in graph.nodes for used in node.all_input_nodes}
    for node in list(graph.nodes):
        other = _product_behind(node) if node.target is aten.mm.default else None
        if other is not None:
            read = {memory[one] for one in node.all_input_nodes}
            dying = [
                one
                for one in other.all_input_nodes
                if last[memory[one]] is other and memory[one] not in read and memory[one][0].op != "placeholder"
            ]
            if memory[argument(node, 0)] in [memory[one] for one in other.all_input_nodes] and _elements(
                dying
            ) > _elements([other]):
                _move_before(other, node)


def _product_behind(node: fx.Node) -> fx.Node | None:
    """The next product, if it could stand before ``node``: nothing between them changes something, or is not
    torch's."""
    following = node.next
    while isinstance(following.target, torch._ops.OpOverload) and not changes(following):
        if following.target is aten.mm.default:
            return (
                following if all(one < node or _looks_before(one, node) for one in following.all_input_nodes) else None
            )
        following = following.next
    return None


def _looks_before(view: fx.Node, node: fx.Node) -> bool:
    """Whether what a transposed value looks at is there before ``node``."""
    return view.target is aten.t.default and argument(view, 0) < node


def _elements(nodes: list[fx.Node]) -> int:
    made = [tensor(node) for node in nodes]
    return sum(one.numel() for one in made if one is not None)


def _move_before(product: fx.Node, node: fx.Node) -> None:
    for view in product.all_input_nodes:
        if not view < node:
            node.prepend(view)
    node.prepend(product)
