"""Which values of a program depend on variables alone (invariant code): one computation of them serves every step until
a variable changes."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from math import prod
from typing import Any

import torch
from torch import fx

from oneflow.engine.capture.cleanup import is_random, writes
from oneflow.engine.program.notes import tensors

SMALL = 2**16
"""Bytes that a value may take whatever it is made of."""


class Invariants:
    """The nodes whose values are invariant while the variables are. Passes that make such nodes add them.

    An invariant value is kept between steps, so it takes no more memory than the variables it is made of: what the step
    would have made anew at each call anyway. A value that is larger than that (a product of two vectors) is left to the
    step. So is what lies in memory that the graph writes to, and what it returns: a result belongs to the user, who may
    write into it.
    """

    def __init__(self, graph: fx.Graph, variables: Iterable[fx.Node]) -> None:
        self._barred = _barred(graph)
        self._behind: dict[fx.Node, frozenset[fx.Node]] = {}
        for node in variables:
            if not _memory(node) & self._barred:
                self._behind[node] = frozenset([node])
        for node in graph.nodes:
            if node.op == "call_function" and self._is_invariant(node):
                self.add(node)

    def __contains__(self, value: Any) -> bool:
        return value in self._behind

    def add(self, node: fx.Node) -> None:
        """Takes in a node that computes from invariant ones alone."""
        self._behind[node] = frozenset().union(*(self._behind[used] for used in node.all_input_nodes))

    def may_move(self, node: fx.Node) -> bool:
        """Whether nothing in the graph writes to the memory that a node's value lies in: it may then be read later than
        it is."""
        return not _memory(node) & self._barred

    def _is_invariant(self, node: fx.Node) -> bool:
        if not _is_pure(node) or _memory(node) & self._barred or not all(used in self for used in node.all_input_nodes):
            return False
        behind = frozenset().union(*(self._behind[used] for used in node.all_input_nodes))
        return _bytes(node) <= max(SMALL, sum(map(_bytes, behind)))


def _barred(graph: fx.Graph) -> set[int]:
    """The memory that the graph writes to or returns."""
    touched = [used for node in graph.nodes if writes(node) or node.op == "output" for used in node.all_input_nodes]
    return set().union(*map(_memory, touched))


def _memory(node: fx.Node) -> set[int]:
    """What memory a node's value, or its values, lie in; views share it."""
    return {t.untyped_storage()._cdata for t in tensors(node)}


def _is_pure(node: fx.Node) -> bool:
    if node.target is operator.getitem:
        return True
    return (
        isinstance(node.target, torch._ops.OpOverload)
        and not writes(node)
        and not is_random(node)
        and bool(tensors(node))
    )


def _bytes(node: fx.Node) -> int:
    """The memory that a node's value takes: none for a view."""
    given = set().union(*map(_memory, node.all_input_nodes))
    return 0 if _memory(node) <= given else sum(prod(t.shape) * t.element_size() for t in tensors(node))
