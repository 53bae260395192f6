"""Which signatures one op runs by, given how its inputs lie: the cheapest of its rule, axis by axis. Pure: every rank
decides the same.

An op by itself does not know what follows it. Two things stand for what the compiler sees in a whole graph: what came
whole is not split, and a sum that is partial only because a layout was changed to it must be paid for, since somebody
will have to add it up.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch

from oneflow.engine.core.sbp import BROADCAST, PARTIAL, Sbp, split
from oneflow.engine.sharding import cost
from oneflow.engine.sharding.call import Call, nbytes
from oneflow.engine.sharding.mesh import Mesh, NdSbp
from oneflow.engine.sharding.rules.rule import Signature, whole
from oneflow.engine.sharding.rules.table import rule_of

_OF_ONE = 1e-9  # a preference among layouts that are all the same on an axis of one rank


def options(call: Call) -> list[Signature]:
    """The ways to run a call on parts, running it whole among them."""
    rule = rule_of(call.op)
    found = [whole(call), *(rule.signatures(call) if rule is not None else ())]
    return [one for one in found if len(one.outputs) == len(call.outputs)]


def choose(
    call: Call, sources: Sequence[NdSbp], everywhere: Sequence[bool], mesh: Mesh, wanted: NdSbp | None = None
) -> tuple[Signature, ...]:
    """One signature per axis for inputs that lie as ``sources``. Those that are ``everywhere`` are plain numbers that
    every rank has. ``wanted`` is how the first output must lie in the end, if it must."""
    found = [s for s in options(call) if all(s.inputs[i] is BROADCAST for i, plain in enumerate(everywhere) if plain)]
    chosen: list[Signature] = []
    for axis, parts in enumerate(mesh.axes):
        before = {s.lower for s in chosen if s.lower is not None}
        fitting = [s for s in found if s.lower is None or not before or s.lower in before]
        here = _Axis(call, axis, parts, _share(chosen, mesh.axes), sources, wanted)
        chosen.append(here.cheapest(fitting))
    return tuple(chosen)


def _share(chosen: Sequence[Signature], axes: Sequence[int]) -> float:
    """What the axes before leave of the work to each rank."""
    share = 1.0
    for signature, extent in zip(chosen, axes):
        if any(sbp.kind == "S" for sbp in (*signature.inputs, *signature.outputs)):
            share /= extent
    return share


class _Axis:
    """The choice along one axis."""

    def __init__(
        self, call: Call, axis: int, parts: int, share: float, sources: Sequence[NdSbp], wanted: NdSbp | None
    ) -> None:
        self.call, self.parts, self.share = call, parts, share
        self.have = [sbp[axis] for sbp in sources]
        self.wanted = wanted[axis] if wanted is not None else None
        self.has_sums = PARTIAL in self.have
        self.sizes = [nbytes(tensor) * share for tensor in call.inputs]

    def cheapest(self, found: Sequence[Signature]) -> Signature:
        if all(sbp is BROADCAST for sbp in self.have) and self.wanted in (None, BROADCAST):
            return found[0]  # what came whole stays whole
        if len(found) == 1:
            return found[0]
        work = cost.work(self.call, found, self.parts, self.share)
        prices = [self._price(signature) + price for signature, price in zip(found, work)]
        return found[min(range(len(found)), key=prices.__getitem__)]

    def _price(self, signature: Signature) -> float:
        total = sum(self._moved(a, b, size) for a, b, size in zip(self.have, signature.inputs, self.sizes))
        if self.wanted is not None:
            total += self._moved(signature.outputs[0], self.wanted, nbytes(self.call.first) * self.share)
        return total

    def _moved(self, source: Sbp, target: Sbp, size: float) -> float:
        if source is target:
            return 0.0
        if self.parts == 1:
            return _OF_ONE
        if target is PARTIAL and not (source is BROADCAST and self.has_sums):
            return cost.boxing(PARTIAL, split(0), size, self.parts)
        return cost.boxing(source, target, size, self.parts)


@cache
def functional_of(op: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """The op that gives as a new tensor what an in-place op writes into its first argument; None if there is none with
    its arguments."""
    name = op._schema.name
    if not name.startswith("aten::") or not name.endswith("_") or name.endswith("__"):
        return None
    packet = getattr(torch.ops.aten, name.removeprefix("aten::")[:-1], None)
    others = [getattr(packet, overload) for overload in packet.overloads()] if packet is not None else []
    return next(
        (other for other in others if not other._schema.is_mutable and _arguments(other) == _arguments(op)), None
    )


def _arguments(op: torch._ops.OpOverload) -> list[tuple[str, str]]:
    return [(argument.name, str(argument.type)) for argument in op._schema.arguments]
