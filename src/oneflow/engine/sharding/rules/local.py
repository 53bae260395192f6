"""What one rank does for its part of a call: as it is on its parts, or as the rule's lowering says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import oneflow.engine.collective as collective
from oneflow.engine.core.region import local_shape, peers, region
from oneflow.engine.sharding.call import Call, Shape
from oneflow.engine.sharding.mesh import Mesh, NdSbp
from oneflow.engine.sharding.rules.rule import ANY_STRIDES, Signature, Value
from oneflow.engine.sharding.rules.table import rule_of


class Emitter(Protocol):
    """What makes the calls of a rank: it adds them to a graph, or runs them at once. The values among the arguments are
    those it gave."""

    def call_function(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], /) -> Value: ...


@dataclass(frozen=True)
class RankLocal:
    """One call on the rank at ``position`` of ``mesh``, run by one signature per axis."""

    emitter: Emitter
    source: Call
    chosen: Sequence[Signature]
    mesh: Mesh
    position: int

    @cached_property
    def along(self) -> tuple[int, ...]:
        """The axes that chose a lowering."""
        return tuple(axis for axis, signature in enumerate(self.chosen) if signature.lower is not None)

    def emit(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value:
        """The value of the call, or a tuple of values, on a rank that has its parts in the layouts that the signatures
        say."""
        lower = next((signature.lower for signature in self.chosen if signature.lower is not None), None)
        if lower is not None:
            return lower(self, self.source, args, kwargs)
        rule = rule_of(self.source.op)
        if rule is not None and rule.localise is not None:
            args, kwargs = rule.localise(self, self.source, args, kwargs)
        return self.emitter.call_function(ANY_STRIDES.get(self.source.op, self.source.op), args, kwargs)

    def call(self, function: Any, *args: Any, **kwargs: Any) -> Value:
        return self.emitter.call_function(function, args, kwargs)

    def shape(self, output: int = 0) -> Shape:
        return local_shape(self.source.outputs[output], self._output(output), self.mesh.axes, self.position)

    def start(self, output: int = 0) -> Shape:
        return _starts(self.source.outputs[output], self._output(output), self.mesh, self.position)

    def input_shape(self, index: int) -> Shape:
        return local_shape(self.source.shapes[index], self._input(index), self.mesh.axes, self.position)

    def input_start(self, index: int) -> Shape:
        return _starts(self.source.shapes[index], self._input(index), self.mesh, self.position)

    def reduce(self, value: Value, how: str = "sum") -> Value:
        return self.call(collective.all_reduce, value, how, tuple(self.mesh.ranks[p] for p in self._peers()))

    @property
    def place(self) -> int:
        return self._peers().index(self.position)

    def _input(self, index: int) -> NdSbp:
        return tuple(signature.inputs[index] for signature in self.chosen)

    def _output(self, index: int) -> NdSbp:
        return tuple(signature.outputs[index] for signature in self.chosen)

    def _peers(self) -> tuple[int, ...]:
        return peers(self.position, self.mesh.axes, self.along)


def _starts(shape: Shape, sbp: NdSbp, mesh: Mesh, position: int) -> Shape:
    return tuple(first for first, _ in region(shape, sbp, mesh.axes, position))
