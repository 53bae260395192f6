"""Matrix products by oneDNN where it is faster than torch's own choice of library.

On processors of AMD the MKL that torch multiplies float32 with is a tenth slower than oneDNN, a quarter where the
result is wide, if the rows of the first factor are contiguous: so are those of activations and of their gradients.
Gradients of weights, whose first factor is transposed, stay with MKL.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import fx

from oneflow.engine.ir.nodes import argument
from oneflow.engine.program.notes import copy_notes, set_val, tensor, val

aten = torch.ops.aten
SIZE = 2**22
"""Below so many multiplications a call of oneDNN, which takes 13 us more, is not worth it."""


def multiply_by_onednn(graph: fx.Graph) -> None:
    """Has oneDNN compute large products in float32 on a CPU of AMD.

    Relies on the graph of a section. Leaves the same values but for rounding.
    """
    if not _is_faster_here():
        return
    for node in list(graph.nodes):
        found = _factors(node)
        if found is not None:
            bias, rows, columns = found
            with graph.inserting_before(node):
                weight = _transposed(graph, columns, node)
            node.target = torch.ops.mkldnn._linear_pointwise.default
            node.args = (rows, weight, bias, "none", [], "")
            if columns is not weight and not columns.users:
                graph.erase_node(columns)


@cache
def _is_faster_here() -> bool:
    """Whether the processor is one of AMD, and torch's build has oneDNN."""
    described = Path("/proc/cpuinfo")
    return (
        torch.backends.mkldnn.is_available()
        and described.exists()
        and "AuthenticAMD" in described.read_text(encoding="utf-8", errors="replace")
    )


def _factors(node: fx.Node) -> tuple[fx.Node | None, fx.Node, fx.Node] | None:
    """Bias, rows and columns of a product that oneDNN is faster at."""
    if node.kwargs or node.target not in (aten.mm.default, aten.addmm.default):
        return None
    first = 0 if node.target is aten.mm.default else 1
    bias, rows, columns = argument(node, 0) if first else None, argument(node, first), argument(node, first + 1)
    made, left, right = tensor(node), tensor(rows), tensor(columns)
    if made is None or left is None or right is None or made.dtype is not torch.float32 or made.device.type != "cpu":
        return None
    is_large = left.numel() * right.shape[1] >= SIZE and min(*left.shape, right.shape[1]) > 1
    return (bias, rows, columns) if is_large and left.is_contiguous() and _is_vector(bias) else None


def _is_vector(bias: fx.Node | None) -> bool:
    value = None if bias is None else tensor(bias)
    return bias is None or (value is not None and value.dim() == 1)


def _transposed(graph: fx.Graph, node: Any, product: fx.Node) -> fx.Node:
    """A factor as oneDNN takes it, which is a part of the product: an input has no note of its own to go by."""
    if node.target is aten.t.default:
        return argument(node, 0)
    made = graph.call_function(aten.t.default, (node,))
    copy_notes(made, product)
    set_val(made, val(node).t())
    return made
