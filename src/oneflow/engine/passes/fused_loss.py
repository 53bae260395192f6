"""The backward pass of a cross entropy over many classes as one op, which writes over the log-softmax where nothing
reads it again."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from oneflow.engine.ir.nodes import argument
from oneflow.engine.ops.kernels import cross_entropy  # noqa: F401 - registers oneflow::cross_entropy_backward
from oneflow.engine.program.notes import copy_notes, tensor

aten = torch.ops.aten
BYTES = 2**20
"""Below so many bytes of logits they are in the cache anyway."""


def fuse_cross_entropy(graph: fx.Graph) -> None:
    """Puts one op in the place of nll_loss_backward and _log_softmax_backward_data.

    Relies on the graph of a section. Leaves the same values.
    """
    for node in list(graph.nodes):
        if node.target is aten._log_softmax_backward_data.default and (found := _loss_behind(node)) is not None:
            loss, log_softmax = found
            gradient, _, target, _, reduction, ignore_index, total_weight = loss.args
            with graph.inserting_before(node):
                args: tuple[Any, ...] = (log_softmax, gradient, target, reduction, ignore_index, total_weight)
                made = graph.call_function(torch.ops.oneflow.cross_entropy_backward.default, args)
            copy_notes(made, node)
            node.replace_all_uses_with(made)
            graph.erase_node(node)
            graph.erase_node(loss)


def _loss_behind(node: fx.Node) -> tuple[fx.Node, fx.Node] | None:
    """The loss whose gradient a log-softmax is given, and the log-softmax: where all of it is that loss's, and
    large."""
    loss, log_softmax, dim, dtype = (argument(node, place) for place in range(4))
    value = tensor(log_softmax)
    if (
        loss.target is not aten.nll_loss_backward.default
        or len(loss.users) > 1
        or argument(loss, 1) is not log_softmax
        or argument(loss, 3) is not None
    ):
        return None
    is_plain = value is not None and value.dim() == 2 and dim in (1, -1) and value.dtype == dtype
    return (loss, log_softmax) if value is not None and is_plain and value.numel() * value.itemsize >= BYTES else None
