"""How much memory the values of a section take at once, by their shapes."""

from __future__ import annotations

from collections import Counter

from torch import fx

from oneflow.engine.program.aliases import Memory, memories
from oneflow.engine.program.notes import tensor


def bytes_at_once(graph: fx.Graph) -> int:
    """The bytes of the values that live at once at most, arguments aside. Relies on a section in the order in which it
    runs; on several ranks its values have the shapes of the whole."""
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
