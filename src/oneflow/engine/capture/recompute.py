"""Activation checkpointing: what modules make in the forward pass is not kept for the backward pass but made again
there.

A region is one call of such a module. Only what is read by later modules, or comes from before it, is kept; random ops
draw by counter, so they draw the same again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import fx

from oneflow.engine.capture.cleanup import drop_unused, is_random, writes
from oneflow.engine.ir.nodes import argument
from oneflow.engine.program.aliases import Memory, memories
from oneflow.engine.program.notes import change_joint_note, copy_notes, joint_note

aten = torch.ops.aten
_RUNNING: dict[Any, tuple[int, int]] = {aten.native_batch_norm.default: (3, 4)}
"""Where ops take running statistics that they change: made again, an op must not change them again."""


def recompute(graph: fx.Graph) -> None:
    """Makes the values of every region again, right before the first backward node that reads one.

    Relies on a clean joint graph whose nodes say which region they are of. Leaves a clean one of the same values.
    """
    regions: dict[int, list[fx.Node]] = {}
    for node in graph.nodes:
        region = joint_note(node).region if node.op == "call_function" else None
        if region is not None and joint_note(node).part == "forward":
            regions.setdefault(region, []).append(node)
    if regions:
        traced = _Traced(graph)
        for members in regions.values():
            _Region(traced, members).make_again()
        drop_unused(graph)  # what the backward pass alone read, and now makes itself


class _Traced:
    """The graph as it was traced: where its values lie, in what order its nodes come, and which of the forward pass
    write."""

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self.memory = memories(graph)
        self.place = {node: i for i, node in enumerate(graph.nodes)}
        self.writers = [
            node for node in graph.nodes if node.op == "call_function" and writes(node) and not _is_backward(node)
        ]
        self.readers: dict[Memory, set[fx.Node]] = {}
        for node in graph.nodes:
            for read in node.all_input_nodes:
                self.readers.setdefault(self.memory[read], set()).add(node)


class _Region:
    def __init__(self, traced: _Traced, members: list[fx.Node]) -> None:
        self._graph = traced.graph
        self._members = members
        self._inside = set(members)
        self._memory = traced.memory
        self._place = traced.place
        self._changed = self._changed_later(traced)

    def _changed_later(self, traced: _Traced) -> set[Memory]:
        """Memory that other values may be in by the time the backward pass comes: what is read from it, or written into
        it, cannot be made again."""
        found = set()
        for node in traced.writers:
            memory = self._memory[argument(node, 0)]
            is_own = (
                node in self._inside and memory[0] in self._inside and all(map(self._is_near, traced.readers[memory]))
            )
            if not is_own and self._place[node] >= self._place[self._members[0]]:
                found.add(memory)
        return found

    def make_again(self) -> None:
        wanted = [
            node for node in self._members if self._is_lost(node) and any(_is_backward(user) for user in node.users)
        ]
        again = self._needed(wanted)
        if not again:
            return
        users = [user for node in wanted for user in node.users if _is_backward(user)]
        new: dict[fx.Node, fx.Node] = {}
        with self._graph.inserting_before(min(users, key=self._place.__getitem__)):
            for node in again:
                new[node] = self._copied(node, new)
        for node in wanted:
            for user in [user for user in node.users if _is_backward(user) and user not in new.values()]:
                user.replace_input_with(node, new[node])

    def _is_near(self, user: fx.Node) -> bool:
        return user in self._inside or _is_backward(user)

    def _is_lost(self, node: fx.Node) -> bool:
        """Whether nothing but the region and the backward pass reads a value, so that it goes when the region is
        left."""
        if is_random(node) or any(self._memory[touched] in self._changed for touched in (node, *node.all_input_nodes)):
            return False
        return all(map(self._is_near, node.users))

    def _needed(self, wanted: Iterable[fx.Node]) -> list[fx.Node]:
        """All that must run again, in order."""
        writers: dict[Memory, list[fx.Node]] = {}
        for node in self._members:
            if writes(node) and self._memory[node] not in self._changed:
                writers.setdefault(self._memory[argument(node, 0)], []).append(node)
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
