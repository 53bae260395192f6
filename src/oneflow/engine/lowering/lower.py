"""SPMD partitioning, the program of one rank: local nodes for every node of the joint graph that it takes part in, and
boxing (resharding) between them.

Every rank walks the same joint graph in the same order and decides the same; where a value is boxed, each emits its own
side. So collectives come in one order on all ranks.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from oneflow.engine.core.region import local_shape
from oneflow.engine.program.calls import call_of, tensor_arguments
from oneflow.engine.program.notes import (
    ArgumentNote,
    BoxingNote,
    LocalNote,
    Value,
    change_local_note,
    joint_note,
    layout_of,
    set_argument_note,
    set_local_note,
    set_val,
    val,
    value_of,
)
from oneflow.engine.sharding.boxing import Crossing, box
from oneflow.engine.sharding.call import nbytes
from oneflow.engine.sharding.mesh import Layout, Mesh
from oneflow.engine.sharding.rules.rule import layouts

_LAYOUT = torch.ops.oneflow.layout.default


class Lowering:
    """Builds the graph of ``rank``. In a world of one rank every call is local as it stands."""

    def __init__(self, rank: int, device: torch.device, is_alone: bool = False) -> None:
        self.rank = rank
        self.device = device
        self.is_alone = is_alone
        self.graph: fx.Graph = fx.Graph()
        self._note = LocalNote()
        self._values: dict[Value, dict[Layout, fx.Node | None]] = {}
        self._made: dict[fx.Node, Any] = {}
        self._tags = 0

    # -------------------------------------------------------------- nodes

    def placeholder(self, node: fx.Node, key: tuple[Any, ...]) -> None:
        """An argument of the program, on the ranks that have it."""
        layout = layout_of(node)
        local = None
        if joint_note(node).everywhere or layout.mesh.position(self.rank) is not None:
            local = self.argument(ArgumentNote(key, self._part_shape(node, layout), val(node).dtype))
            set_val(local, val(node))
        self._values[node, 0] = {layout: local}

    def _part_shape(self, node: fx.Node, layout: Layout) -> tuple[int, ...]:
        shape, position = tuple(val(node).shape), layout.mesh.position(self.rank)
        return shape if position is None else local_shape(shape, layout.sbp, layout.mesh.axes, position)

    def argument(self, note: ArgumentNote) -> fx.Node:
        """A new argument of the program."""
        local = self.graph.placeholder("argument")
        set_argument_note(local, note)
        return local

    def run(self, node: fx.Node) -> None:
        """The local nodes of one node of the joint graph."""
        if node.target is operator.getitem:
            return
        note = joint_note(node)
        mesh, tensors = note.placed, tensor_arguments(node)
        inputs, outputs = layouts(note.chosen)
        self._note = LocalNote(section=note.part)
        with self.noting(consumer=node):
            boxed = [self.boxed(n, Layout(mesh, sbp)) for n, sbp in zip(tensors, inputs)]
        position = mesh.position(self.rank)
        if position is not None:
            with self.noting(node=node):
                self._made[node] = self._emit(node, boxed, mesh, position)
        for index, sbp in enumerate(outputs):
            self._values[node, index] = {Layout(mesh, sbp): self._output(node, index) if position is not None else None}

    def _emit(self, node: fx.Node, boxed: list[fx.Node | None], mesh: Mesh, position: int) -> Any:
        if node.target is _LAYOUT:
            return boxed[0]
        remaining = iter(boxed)
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda _: next(remaining))
        if self.is_alone:
            made = self.call_function(node.target, args, kwargs)
            set_val(made, val(node))
            return made
        from oneflow.engine.sharding.rules.local import (
            RankLocal,  # with the rules of every op, which one rank does not need
        )

        local = RankLocal(self, call_of(node, mesh.size), joint_note(node).chosen, mesh, position)
        made = local.emit(args, kwargs)
        if not local.along:
            change_local_note(made, local=local)
            set_val(made, val(node))
        return made

    def _output(self, node: fx.Node, index: int) -> fx.Node | None:
        made = self._made[node]
        if isinstance(made, tuple):
            return made[index]
        if not isinstance(val(node), (tuple, list)):
            return made
        if not any(user.args[1] == index for user in node.users):
            return None
        item = self.call_function(operator.getitem, (made, index))
        set_val(item, val(node)[index])
        return item

    def call_function(self, target: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> fx.Node:
        local = self.graph.call_function(target, args, kwargs or {})
        set_local_note(local, self._note)
        return local

    @contextmanager
    def noting(self, **changes: Any) -> Iterator[None]:
        """Applies changes to the notes of the nodes that are created inside."""
        before, self._note = self._note, replace(self._note, **changes)
        try:
            yield
        finally:
            self._note = before

    # -------------------------------------------------------------- boxing

    def boxed(self, node: fx.Node, target: Layout) -> fx.Node | None:
        """The value of a joint node in another layout; None on ranks that hold nothing of it."""
        value = value_of(node)
        have = self._values[value]
        if joint_note(value[0]).everywhere:
            return next(iter(have.values()))
        if target not in have:
            boxing = BoxingNote(node, layout_of(node), target)
            with self.noting(boxing=boxing, section=self._section_of(value[0], target)):
                have[target] = self._boxed(node, have, target)
        return have[target]

    def forget_boxed(self, node: fx.Node) -> None:
        """Forgets the layouts that a value was boxed to. Behind the last micro-batch it is the sum over all of them,
        and what was boxed is not."""
        value, layout = value_of(node), layout_of(node)
        self._values[value] = {layout: self._values[value][layout]}

    def _section_of(self, producer: fx.Node, target: Layout) -> str:
        """What is stored is boxed once per step, whatever the number of micro-batches. What crosses to another mesh
        goes as soon as it is made: a stage that is ahead must not wait for one behind it. A gradient goes when it is
        the sum over all micro-batches."""
        note, section = joint_note(producer), self._note.section
        if note.is_stored:
            return "prologue"
        return section if note.placed == target.mesh or section == "reduce" else note.part

    def _boxed(self, node: fx.Node, have: dict[Layout, fx.Node | None], target: Layout) -> fx.Node | None:
        from oneflow.engine.sharding import cost

        tensor = val(node)
        near = [layout for layout in have if layout.mesh == target.mesh]
        source, crossing = next(iter(have)), None
        if near:
            size = nbytes(tensor)
            source = min(near, key=lambda layout: cost.change(layout.sbp, target.sbp, size, target.mesh.axes))
        else:
            self._tags += 1
            crossing = Crossing(self._tags, str(self.device), written=joint_note(node).is_stored)
        return box(
            self._boxing_call, self.rank, have[source], tuple(tensor.shape), tensor.dtype, source, target, crossing
        )

    def _boxing_call(self, function: Any, args: tuple[Any, ...], source: Layout, target: Layout) -> fx.Node:
        before = self._note.boxing
        assert before is not None
        with self.noting(boxing=replace(before, source=source, target=target)):
            return self.call_function(function, args)
