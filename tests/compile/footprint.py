"""Peak memory of the values of a section, by their shapes."""

from __future__ import annotations

from collections import Counter

from torch import fx

from oneflow.engine.program.aliases import Memory, memories
from oneflow.engine.program.notes import tensor


def bytes_at_once(graph: fx.Graph) -> int:
    """Returns the peak of live bytes over the nodes in order, without the arguments."""
    memory = memories(graph)
    last = {memory[used]: node for node in graph.nodes for used in (node, *node.all_input_nodes)}
    sizes: dict[Memory, int] = {}
    freed: Counter[fx.Node] = Counter()
    live = most = 0
    for node in graph.nodes:
        made, where = tensor(node), memory[node]
        if made is not None and where not in sizes and where[0].op == "call_function":
            sizes[where] = made.numel() * made.itemsize
            freed[last[where]] += sizes[where]
            live += sizes[where]
            most = max(most, live)
        live -= freed[node]
    return most
