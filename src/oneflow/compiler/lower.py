"""SPMD partitioning, the program of one rank: local nodes for every node of the joint graph that it takes part in, and boxing (resharding)
between them.

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

from oneflow.compiler.calls import call_of, tensor_arguments
from oneflow.compiler.infer import Value, layout_of, value_of
from oneflow.core.layout import local_shape
from oneflow.sharding import cost
from oneflow.sharding.boxing import Crossing, box
from oneflow.sharding.call import nbytes
from oneflow.sharding.mesh import Layout, Mesh
from oneflow.sharding.rules.local import RankLocal, layouts

_LAYOUT = torch.ops.oneflow.layout.default


class Lowering:
    """Builds the graph of ``rank``. ``section`` says which part of a step the nodes made now belong to. In a world of one rank every call is
    local as it stands."""

    def __init__(self, rank: int, device: torch.device, is_alone: bool = False) -> None:
        self.rank = rank
        self.device = device
        self.is_alone = is_alone
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
            local.meta["val"] = node.meta["val"]
            local.meta["shape"], local.meta["dtype"] = self._shape_here(node, layout), node.meta["val"].dtype
        self._values[node, 0] = {layout: local}

    def _shape_here(self, node: fx.Node, layout: Layout) -> tuple[int, ...]:
        shape, position = tuple(node.meta["val"].shape), layout.mesh.position(self.rank)
        return shape if position is None else local_shape(shape, layout.sbp, layout.mesh.axes, position)

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
        mesh, tensors = node.meta["mesh"], tensor_arguments(node)
        inputs, outputs = layouts(node.meta["signatures"][: len(mesh.axes)])
        with self.because(consumer=node):
            boxed = [self.boxed(n, Layout(mesh, sbp)) for n, sbp in zip(tensors, inputs)]
        position = mesh.position(self.rank)
        if position is not None:
            with self.because(node=node):
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
            made.meta["val"] = node.meta["val"]
            return made
        local = RankLocal(self, call_of(node, mesh.size), node.meta["signatures"][: len(mesh.axes)], mesh, position)
        made = local.emit(args, kwargs)
        if not local.along:
            made.meta["local"] = local
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
        tensor = node.meta["val"]
        near = [layout for layout in have if layout.mesh == target.mesh]
        source, crossing = next(iter(have)), None
        if near:
            size = nbytes(tensor)
            source = min(near, key=lambda layout: cost.change(layout.sbp, target.sbp, size, target.mesh.axes))
        else:
            self._tags += 1
            crossing = Crossing(self._tags, str(self.device), written=bool(node.meta.get("stored")))
        return box(self._boxing_call, self.rank, have[source], tuple(tensor.shape), tensor.dtype, source, target, crossing)

    def _boxing_call(self, function: Any, args: tuple[Any, ...], source: Layout, target: Layout) -> fx.Node:
        with self.because(source=source, target=target):
            return self.call_function(function, args)
