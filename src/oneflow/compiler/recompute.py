"""Activation checkpointing: what modules make in the forward pass is not kept for the backward pass but made again there.

A region is one call of such a module. Only what is read by later modules, or comes from before it, is kept; random ops draw by counter, so they
draw the same again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import fx

from oneflow.compiler.cleanup import is_random, writes
from oneflow.compiler.inplace import Memory, memories
from oneflow.compiler.notes import change_joint_note, copy_notes, joint_note
from oneflow.ir.nodes import argument

aten = torch.ops.aten
_RUNNING: dict[Any, tuple[int, int]] = {aten.native_batch_norm.default: (3, 4)}
"""Where ops take running statistics that they change: made again, an op must not change them again."""


def recompute(graph: fx.Graph) -> None:
    """Makes the values of every region again, right before the first backward node that reads one.

    Relies on a clean joint graph whose nodes say which region they are of. Leaves the same values.
    """
    regions: dict[int, list[fx.Node]] = {}
    for node in graph.nodes:
        region = joint_note(node).region if node.op == "call_function" else None
        if region is not None and joint_note(node).part == "forward":
            regions.setdefault(region, []).append(node)
    if regions:
        memory = memories(graph)
        place = {node: i for i, node in enumerate(graph.nodes)}
        for members in regions.values():
            _Region(graph, members, memory, place).make_again()


class _Region:
    def __init__(self, graph: fx.Graph, members: list[fx.Node], memory: dict[fx.Node, Memory], place: dict[fx.Node, int]) -> None:
        self._graph = graph
        self._members = members
        self._inside = set(members)
        self._memory = memory
        self._place = place

    def make_again(self) -> None:
        wanted = [node for node in self._members if self._is_lost(node) and any(_is_backward(user) for user in node.users)]
        again = self._needed(wanted)
        if again is None or not again:
            return
        users = [user for node in wanted for user in node.users if _is_backward(user)]
        new: dict[fx.Node, fx.Node] = {}
        with self._graph.inserting_before(min(users, key=self._place.__getitem__)):
            for node in again:
                new[node] = self._copied(node, new)
        for node in wanted:
            for user in [user for user in node.users if _is_backward(user) and user not in new.values()]:
                user.replace_input_with(node, new[node])

    def _is_lost(self, node: fx.Node) -> bool:
        """Whether nothing but the region and the backward pass reads a value, so that it goes when the region is left."""
        return not is_random(node) and all(user in self._inside or _is_backward(user) for user in node.users)

    def _needed(self, wanted: Iterable[fx.Node]) -> list[fx.Node] | None:
        """All that must run again, in order. None where that cannot be: the region writes over what came from outside."""
        writers: dict[Memory, list[fx.Node]] = {}
        for node in self._members:
            if writes(node) and argument(node, 0).op != "placeholder":
                writers.setdefault(self._memory[argument(node, 0)], []).append(node)
        if any(memory[0] not in self._inside for memory in writers):
            return None
        found: set[fx.Node] = set()
        todo = list(wanted)
        while todo:
            node = todo.pop()
            if node not in found:
                found.add(node)
                todo += [read for read in node.all_input_nodes if read in self._inside and self._is_lost(read)]
                todo += writers.get(self._memory[node], [])
        return [node for node in self._members if node in found]

    def _copied(self, node: fx.Node, new: dict[fx.Node, fx.Node]) -> fx.Node:
        copy = self._graph.node_copy(node, lambda read: new.get(read, read))
        copy_notes(copy, node)
        change_joint_note(copy, part="backward", region=None)
        for index in _RUNNING.get(copy.target, ()):
            if copy.args[5]:  # in training
                copy.update_arg(index, None)
        return copy


def _is_backward(node: fx.Node) -> bool:
    return node.op == "call_function" and joint_note(node).part == "backward"
