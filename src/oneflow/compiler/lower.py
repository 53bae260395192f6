"""The program of one rank: local nodes for every node of the joint graph that it takes part in, and boxing between them.

Every rank walks the same joint graph in the same order and decides the same; where a value is boxed, each emits its own side.
So collectives come in one order on all ranks.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx

import oneflow.collective as collective
from oneflow.compiler import cost
from oneflow.compiler.boxing import Move, extents, moves, place_on, split_extents, transfer
from oneflow.compiler.infer import Value, layout_of, value_of
from oneflow.compiler.mesh import Layout, Mesh, NdSbp
from oneflow.compiler.rules.local import RankLocal
from oneflow.compiler.rules.rule import Call, tensor_arguments
from oneflow.compiler.rules.table import rule_of
from oneflow.core.layout import local_shape, peers
from oneflow.core.sbp import BROADCAST

aten = torch.ops.aten
_LAYOUT = torch.ops.oneflow.layout.default
# A part of a tensor may have other strides than the whole; reshape takes any.
_ANY_STRIDES: dict[Any, Any] = {aten.view.default: aten.reshape.default, aten._unsafe_view.default: aten.reshape.default}


class Lowering:
    """Builds the graph of ``rank``. ``section`` says which part of a step the nodes made now belong to."""

    def __init__(self, rank: int, device: torch.device) -> None:
        self.rank = rank
        self.device = device
        self.graph: fx.Graph = fx.Graph()
        self.section = "forward"
        self.reason: dict[str, Any] = {}
        self._values: dict[Value, dict[Layout, fx.Node | None]] = {}
        self._made: dict[fx.Node, Any] = {}
        self._tags = 0

    # -------------------------------------------------------------- nodes

    def placeholder(self, node: fx.Node, key: tuple[Any, ...]) -> None:
        """An argument of the program, on the ranks that have it."""
        layout = layout_of(node)
        local = None
        if node.meta.get("everywhere") or layout.mesh.position(self.rank) is not None:
            local = self.argument(key)
            local.meta["shape"] = self._shape_here(tuple(node.meta["val"].shape), layout)
            local.meta["dtype"] = node.meta["val"].dtype
        self._values[node, 0] = {layout: local}

    def argument(self, key: tuple[Any, ...]) -> fx.Node:
        """A new argument of the program, known by its key."""
        local = self.graph.placeholder("argument")
        local.meta["key"] = key
        return local

    def run(self, node: fx.Node) -> None:
        """The local nodes of one node of the joint graph."""
        if node.target is operator.getitem:
            return
        self.section = node.meta["part"]
        mesh, signatures = node.meta["mesh"], node.meta["signatures"]
        inputs = [tuple(s.inputs[i] for s in signatures[: len(mesh.axes)]) for i in range(len(tensor_arguments(node)))]
        with self.because(consumer=node):
            boxed = [self.boxed(n, Layout(mesh, sbp)) for n, sbp in zip(tensor_arguments(node), inputs)]
        position = mesh.position(self.rank)
        outputs = node.meta["sbp"]
        if position is not None:
            with self.because(node=node):
                self._made[node] = self._emit(node, boxed, inputs, mesh, position)
        for index, sbp in enumerate(outputs):
            self._values[node, index] = {Layout(mesh, sbp): self._output(node, index) if position is not None else None}

    def _emit(self, node: fx.Node, boxed: list[fx.Node | None], inputs: list[NdSbp], mesh: Mesh, position: int) -> Any:
        if node.target is _LAYOUT:
            return boxed[0]
        remaining = iter(boxed)
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda _: next(remaining))
        signatures = node.meta["signatures"][: len(mesh.axes)]
        lowered = tuple(axis for axis, s in enumerate(signatures) if s.lower is not None)
        call = Call(node, mesh.size)
        local = RankLocal(self, call, inputs, node.meta["sbp"], mesh.axes, position, mesh.ranks, lowered)
        if lowered:
            return signatures[lowered[0]].lower(local, call, args, kwargs)  # type: ignore[misc]
        rule = rule_of(node.target)
        if rule is not None and rule.localise is not None:
            args, kwargs = rule.localise(local, call, args, kwargs)
        made = self.call_function(_ANY_STRIDES.get(node.target, node.target), args, kwargs)
        made.meta["val"] = node.meta["val"]  # of the whole: what has its size and strides has those of this rank's part here
        return made

    def _output(self, node: fx.Node, index: int) -> fx.Node | None:
        made = self._made[node]
        if isinstance(made, tuple):
            return made[index]
        if not isinstance(node.meta["val"], (tuple, list)):
            return made
        if not any(user.args[1] == index for user in node.users):
            return None
        item = self.call_function(operator.getitem, (made, index))
        item.meta["val"] = node.meta["val"][index]
        return item

    def call_function(self, target: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> fx.Node:
        local = self.graph.call_function(target, args, kwargs or {})
        local.meta.update(self.reason, section=self.section)
        return local

    @contextmanager
    def because(self, **reason: Any) -> Iterator[None]:
        """Notes on the nodes made inside why they are there."""
        before, self.reason = self.reason, {**self.reason, **reason}
        yield
        self.reason = before

    @contextmanager
    def within(self, section: str) -> Iterator[None]:
        """Makes nodes of another part of the step."""
        before, self.section = self.section, section
        yield
        self.section = before

    # -------------------------------------------------------------- boxing

    def boxed(self, node: fx.Node, target: Layout) -> fx.Node | None:
        """The value of a joint node in another layout; None on ranks that hold nothing of it."""
        value = value_of(node)
        have = self._values[value]
        if value[0].meta.get("everywhere"):
            return next(iter(have.values()))
        if target not in have:
            with self.because(boxed=node, target=target, source=layout_of(node)), self.within(self._section_of(value[0], target)):
                have[target] = self._boxed(node, have, target)
        return have[target]

    def unbox(self, node: fx.Node) -> None:
        """Forgets the layouts that a value was boxed to. Behind the last micro-batch it is the sum over all of them, and what was boxed is not."""
        value, layout = value_of(node), layout_of(node)
        self._values[value] = {layout: self._values[value][layout]}

    def _section_of(self, producer: fx.Node, target: Layout) -> str:
        """What is stored is boxed once a step, whatever the number of micro-batches. What crosses to another mesh goes as soon as it is
        made: a stage that is ahead must not wait for one behind it."""
        if producer.meta.get("stored"):
            return "prologue"
        return self.section if producer.meta["mesh"] == target.mesh else producer.meta["part"]

    def _boxed(self, node: fx.Node, have: dict[Layout, fx.Node | None], target: Layout) -> fx.Node | None:
        shape = tuple(node.meta["val"].shape)
        near = [layout for layout in have if layout.mesh == target.mesh]
        if near:
            source = min(near, key=lambda layout: _price(node, layout.sbp, target.sbp, target.mesh))
            return self._on_one_mesh(have[source], shape, source, target.sbp)
        source = next(iter(have))
        summed = Layout(source.mesh, _without_partial(source.sbp))
        reduced = self._on_one_mesh(have[source], shape, source, summed.sbp)
        arrived = Layout(target.mesh, _without_partial(target.sbp))
        return self._on_one_mesh(self._across(reduced, node, summed, arrived), shape, arrived, target.sbp)

    def _across(self, local: fx.Node | None, node: fx.Node, source: Layout, target: Layout) -> fx.Node | None:
        value = node.meta["val"]
        self._tags += 1
        moved = transfer(tuple(value.shape), source, target, self.rank)
        if moved.is_idle:
            return None
        if moved.outgoing and node.meta.get("stored"):  # sending does not wait, and the step may change the variable meanwhile
            local = self.call_function(aten.clone.default, (local,))
        args = (local, moved.shape, value.dtype, moved.outgoing, moved.incoming, self._tags, str(self.device))
        made = self.call_function(collective.exchange, args)
        return made if moved.shape is not None else None

    def _on_one_mesh(self, local: fx.Node | None, shape: tuple[int, ...], source: Layout, target: NdSbp) -> fx.Node | None:
        if local is None:
            return None
        position = source.mesh.position(self.rank)
        assert position is not None
        now, local = self._summed(local, source, target, position)
        for move in moves(now, target):
            after = tuple(move.target if axis == move.axis else sbp for axis, sbp in enumerate(move.before))
            with self.because(source=Layout(source.mesh, move.before), target=Layout(source.mesh, after)):
                local = self._moved(local, shape, move, source.mesh, position)
        return local

    def _summed(self, local: fx.Node, source: Layout, target: NdSbp, position: int) -> tuple[NdSbp, fx.Node]:
        """A sum over several axes is one sum over all their ranks: half the bytes of one after the other."""
        mesh = source.mesh
        along = [axis for axis, (a, b) in enumerate(zip(source.sbp, target)) if a.kind == "P" and b.kind == "B" and mesh.axes[axis] > 1]
        if len(along) < 2:
            return source.sbp, local
        after = tuple(BROADCAST if axis in along else sbp for axis, sbp in enumerate(source.sbp))
        ranks = tuple(mesh.ranks[p] for p in peers(position, mesh.axes, along))
        with self.because(source=source, target=Layout(mesh, after)):
            return after, self.call_function(collective.all_reduce, (local, "sum", ranks))

    def _moved(self, local: fx.Node, shape: tuple[int, ...], move: Move, mesh: Mesh, position: int) -> fx.Node:
        ranks = tuple(mesh.ranks[p] for p in peers(position, mesh.axes, (move.axis,)))
        place = place_on(mesh, position, move.axis)
        source, target = move.source, move.target
        parts = extents(shape, move.before, mesh, position, move.axis, source.dim) if source.dim is not None else ()
        after = split_extents(shape, move, mesh, position) if target.dim is not None else ()
        if len(ranks) == 1:
            return local
        match source.kind, target.kind:
            case "P", "B":
                return self.call_function(collective.all_reduce, (local, "sum", ranks))
            case "P", "S":
                return self.call_function(collective.reduce_parts, (local, target.dim, after, ranks))
            case "S", "B":
                return self.call_function(collective.gather_parts, (local, source.dim, parts, ranks))
            case "S", "S":
                return self.call_function(collective.exchange_parts, (local, source.dim, target.dim, parts, after, ranks))
            case "B", "S":
                return self.call_function(collective.part_of, (local, target.dim, after, place))
            case "S", "P":
                return self.call_function(collective.part_as_partial, (local, source.dim, parts, place))
        return self.call_function(collective.as_partial, (local, place == 0))

    def _shape_here(self, shape: tuple[int, ...], layout: Layout) -> tuple[int, ...]:
        position = layout.mesh.position(self.rank)
        return shape if position is None else local_shape(shape, layout.sbp, layout.mesh.axes, position)


def _without_partial(sbp: NdSbp) -> NdSbp:
    return tuple(BROADCAST if s.kind == "P" else s for s in sbp)


def _price(node: fx.Node, source: NdSbp, target: NdSbp, mesh: Mesh) -> float:
    size = cost.nbytes(node.meta["val"])
    return sum(cost.boxing(a, b, size, parts) for a, b, parts in zip(source, target, mesh.axes))
