"""Gathers of transposed variables: what is gathered is the variable itself, and the whole is transposed.

The parts of a weight that is split along dim 0 lie one behind the other in memory; those of its transpose are rows cut
in pieces, which would have to be copied element by element, once to be sent and once to be put together.
"""

from __future__ import annotations

import torch
from torch import fx

import oneflow.engine.collective as collective
from oneflow.engine.ir.nodes import argument
from oneflow.engine.program.notes import copy_notes

_TRANSPOSE = torch.ops.aten.t.default


def gather_then_transpose(graph: fx.Graph) -> None:
    """Puts the transpose of a gather in the place of the gather of a variable's transpose.

    Relies on the graph of a section. Leaves the same values, and as many bytes sent.
    """
    for node in list(graph.nodes):
        if node.target is not collective.gather_parts:
            continue
        turned, dim, sizes, ranks = (argument(node, place) for place in range(4))
        if turned.target is not _TRANSPOSE or argument(turned, 0).op != "placeholder":
            continue
        with graph.inserting_before(node):
            whole = graph.call_function(collective.gather_parts, (argument(turned, 0), 1 - dim, sizes, ranks))
            made = graph.call_function(_TRANSPOSE, (whole,))
        for new in (whole, made):
            copy_notes(new, node)
        node.replace_all_uses_with(made)
        graph.erase_node(node)
        if not turned.users:
            graph.erase_node(turned)
