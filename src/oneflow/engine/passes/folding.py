"""Batch normalisation of a predict job goes into the convolution before it (batch norm folding): with fixed statistics
it scales and shifts each channel.
"""

from __future__ import annotations

import torch
from torch import fx

from oneflow.engine.ir.nodes import argument
from oneflow.engine.ops.cpu.folded_norm import folded_bias, folded_weight
from oneflow.engine.passes.invariant import Invariants
from oneflow.engine.program.notes import copy_notes, set_val, val

aten = torch.ops.aten
_TRANSPOSED = 6
"""Which argument of a convolution says that it is a transposed one."""


def fold_batch_norms(graph: fx.Graph, invariants: Invariants) -> None:
    """Gives each convolution that is read by one such normalisation alone the normalised filters and bias.

    Relies on a lowered predict step. Leaves the same values within rounding; what it adds is among the invariants.
    """
    for node in list(graph.nodes):
        if node.target is aten.native_batch_norm.default and _can_fold(node, invariants):
            _fold(graph, node, invariants)


def _can_fold(norm: fx.Node, invariants: Invariants) -> bool:
    conv, training = argument(norm, 0), argument(norm, 5)
    if training or conv.target is not aten.convolution.default or conv.args[_TRANSPOSED] or len(conv.users) > 1:
        return False
    if any(user.args[1] != 0 or val(user).stride() != val(conv).stride() for user in norm.users):
        return False
    numbers = [number for number in (*conv.args[1:3], *norm.args[1:5]) if number is not None]
    if not all(number in invariants for number in numbers):
        return False
    dtypes = {val(node).dtype for node in (conv, *numbers)}
    return len(dtypes) == 1 and dtypes <= {torch.float32, torch.float64}


def _fold(graph: fx.Graph, norm: fx.Node, invariants: Invariants) -> None:
    conv = argument(norm, 0)
    weight, bias = argument(conv, 1), argument(conv, 2)
    gamma, beta, mean, variance, epsilon = (argument(norm, i) for i in (1, 2, 3, 4, 7))
    with graph.inserting_before(conv):
        folded = graph.call_function(folded_weight, (weight, gamma, variance, epsilon))
        shift = graph.call_function(folded_bias, (bias, gamma, beta, mean, variance, epsilon))
    for made, like in ((folded, weight), (shift, mean)):
        copy_notes(made, norm)
        set_val(made, val(like))
        invariants.add(made)
    conv.args = (conv.args[0], folded, shift, *conv.args[3:])
    for user in list(norm.users):
        user.replace_all_uses_with(conv)
        graph.erase_node(user)
    graph.erase_node(norm)
