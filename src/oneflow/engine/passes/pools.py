"""The backward pass of a max pool takes what was pooled for the sake of its shape alone: the places of the largest
numbers are noted.

So it is given something of that shape and memory order that is kept anyway, such as what a batch norm before the pool
was given, and what was pooled need not be kept.
"""

from __future__ import annotations

import operator

import torch
from torch import fx

from oneflow.engine.ir.nodes import argument
from oneflow.engine.program.aliases import memories
from oneflow.engine.program.notes import tensor

aten = torch.ops.aten
_ALIKE = (aten.native_batch_norm.default, aten.relu.default, aten.hardtanh.default)
"""Ops whose first result has the shape of their first argument, also of the parts that a rank has."""


def pool_by_shapes(graph: fx.Graph) -> None:
    """Has the backward pass of each max pool read, in the place of what was pooled, what that was made of, if something
    else reads that later still.

    Relies on the graph of a section. Leaves the same values.
    """
    pools = [node for node in graph.nodes if node.target is aten.max_pool2d_with_indices_backward.default]
    if not pools:
        return
    memory = memories(graph)
    last = {memory[used]: node for node in graph.nodes for used in node.all_input_nodes}
    for pool in pools:
        pooled = argument(pool, 1)
        given: fx.Node | None = pooled
        while given is not None and not pool < last[memory[given]]:
            given = _made_of(given)
        if given is not None and given is not pooled:
            pool.update_arg(1, given)


def _made_of(node: fx.Node) -> fx.Node | None:
    """A value of the same shape, memory order and dtype that a value was made of."""
    made_by = argument(node, 0) if node.target is operator.getitem and node.args[1] == 0 else node
    if made_by.target not in _ALIKE:
        return None
    given = argument(made_by, 0)
    mine, its = tensor(node), tensor(given)
    is_alike = (
        mine is not None
        and its is not None
        and (mine.shape, mine.stride(), mine.dtype) == (its.shape, its.stride(), its.dtype)
    )
    return given if is_alike else None
