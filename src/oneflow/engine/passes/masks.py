"""The backward pass of relu with a ceiling (relu6) looks at what it made instead of what it was given.

Between the bounds the two are the same, and outside both are outside; what it made is kept anyway, for the gradients of
the layer behind. What it was given need not be kept then, nor copied where it works in place.
"""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import fx

from oneflow.engine.capture.cleanup import changed_by
from oneflow.engine.ir.nodes import argument
from oneflow.engine.passes.inplace import may_keep
from oneflow.engine.program.aliases import Memory, memories

aten = torch.ops.aten
_CLAMPS = (aten.hardtanh.default, aten.hardtanh_.default)


def mask_by_results(graph: fx.Graph) -> None:
    """Has each ``hardtanh_backward`` read the result of its ``hardtanh``, where nothing writes into that later.

    Relies on the graph of a section. Leaves the same values.
    """
    masks = [node for node in graph.nodes if node.target is aten.hardtanh_backward.default]
    if not masks:
        return
    memory, writers = memories(graph), _writers(graph)
    for mask in masks:
        given = argument(mask, 1)
        copied = argument(given, 0) if given.target is aten.clone.default else given
        clamp = next(
            (node for node in copied.users if node.target in _CLAMPS and _bounds(node, 1) == _bounds(mask, 2)), None
        )
        if clamp is None or not given < clamp < mask:
            continue
        before = [node for node in writers[memory[copied]] if given < node < clamp]
        after = [node for node in writers[memory[clamp]] if clamp < node < mask]
        if not before and not after:
            mask.update_arg(1, clamp)
            if given is not copied and not given.users:
                graph.erase_node(given)


def _bounds(node: fx.Node, first: int) -> tuple[object, ...]:
    return node.args[first : first + 2]  # none where they are torch's defaults


def _writers(graph: fx.Graph) -> dict[Memory, list[fx.Node]]:
    """The nodes that may change each memory."""
    memory = memories(graph)
    found: dict[Memory, list[fx.Node]] = defaultdict(list)
    for node in graph.nodes:
        for changed in node.all_input_nodes if may_keep(node) else changed_by(node):
            found[memory[changed]].append(node)
    return found
