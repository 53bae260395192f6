"""Nodes of a joint graph as the calls that rules and costs are asked about."""

from __future__ import annotations

from torch import fx

from oneflow.engine.program.notes import val
from oneflow.engine.sharding.call import Call


def call_of(node: fx.Node, parts: int) -> Call:
    """A node as a call that ``parts`` ranks may share, the values noted on nodes in the place of tensors."""
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), val)
    return Call(node.target, args, kwargs, val(node), parts)


def tensor_arguments(node: fx.Node) -> tuple[fx.Node, ...]:
    """The tensor arguments of a node in order of appearance: those of its call's ``inputs``."""
    found: list[fx.Node] = []
    fx.node.map_arg((node.args, node.kwargs), found.append)
    return tuple(found)
