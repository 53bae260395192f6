"""The nodes of one rank, as a rule's lowering builds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from torch import fx

import oneflow.collective as collective
from oneflow.compiler.rules.rule import Call, Shape
from oneflow.core.layout import local_shape, peers, region
from oneflow.core.sbp import Sbp

NdSbp = tuple[Sbp, ...]


class Nodes(Protocol):
    """What nodes are added to: an ``fx.Graph``, or something that notes why each is there."""

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> fx.Node: ...


@dataclass(frozen=True)
class RankLocal:
    """One call on one rank: ``position`` in a placement of ``axes`` whose members are ``ranks``.

    ``inputs`` and ``outputs`` are the layouts, one Sbp an axis, of the call's tensors; ``along`` the axes that chose the lowering.
    """

    graph: Nodes
    source: Call
    inputs: Sequence[NdSbp]
    outputs: Sequence[NdSbp]
    axes: tuple[int, ...]
    position: int
    ranks: tuple[int, ...]
    along: tuple[int, ...]

    def call(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        return self.graph.call_function(target, args, kwargs)

    def shape(self, output: int = 0) -> Shape:
        return local_shape(self.source.outputs[output], self.outputs[output], self.axes, self.position)

    def start(self, output: int = 0) -> Shape:
        return tuple(first for first, _ in region(self.source.outputs[output], self.outputs[output], self.axes, self.position))

    def input_shape(self, index: int) -> Shape:
        return local_shape(self.source.shapes[index], self.inputs[index], self.axes, self.position)

    def input_start(self, index: int) -> Shape:
        return tuple(first for first, _ in region(self.source.shapes[index], self.inputs[index], self.axes, self.position))

    def input_shapes(self, index: int) -> list[Shape]:
        return list(_shapes(self.source.shapes[index], self.inputs[index], self.axes, self._peers()))

    def reduce(self, value: fx.Node, how: str = "sum") -> fx.Node:
        return self.call(collective.all_reduce, value, how, self._group())

    def gather(self, value: fx.Node) -> fx.Node:
        return self.call(collective.all_gather, value, self._group())

    @property
    def place(self) -> int:
        return self._peers().index(self.position)

    @property
    def is_first(self) -> bool:
        return self.place == 0

    def _peers(self) -> tuple[int, ...]:
        return peers(self.position, self.axes, self.along)

    def _group(self) -> tuple[int, ...]:
        return tuple(self.ranks[p] for p in self._peers())


@lru_cache(maxsize=256)
def _shapes(shape: Shape, sbp: NdSbp, axes: tuple[int, ...], positions: tuple[int, ...]) -> tuple[Shape, ...]:
    """The shapes of the parts at these positions: layers of one size ask for the same, of a thousand ranks."""
    return tuple(local_shape(shape, sbp, axes, position) for position in positions)
