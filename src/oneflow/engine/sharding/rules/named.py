"""Signatures and arguments by the names of an op's schema."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from oneflow.engine.core.sbp import BROADCAST, Sbp, split
from oneflow.engine.sharding.call import Call, Shape
from oneflow.engine.sharding.rules.rule import Signature


def signature(
    call: Call, outputs: Sequence[Sbp], lower: Callable[..., Any] | None = None, moved: int = 0, /, **inputs: Sbp
) -> Signature:
    """A signature whose inputs are given by name. A tensor that is not named is whole; a name that was not given a
    tensor is ignored."""
    layouts = [BROADCAST] * len(call.inputs)
    for name, sbp in inputs.items():
        place = call.index(name)
        if place is not None:
            layouts[place] = sbp
    return Signature(tuple(layouts), tuple(outputs), lower, moved)


def shape_of(call: Call, name: str) -> Shape:
    """The logical shape of a tensor argument that was given."""
    place = call.index(name)
    assert place is not None, f"{call.op} was given no tensor as its {name}"
    return call.shapes[place]


def arguments(call: Call, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a rank's call by name, defaults included."""
    schema = call.op._schema.arguments
    given = {a.name: value for a, value in zip(schema, args)}
    return {a.name: a.default_value for a in schema if a.has_default_value()} | given | kwargs


def replaced(
    call: Call, args: Sequence[Any], kwargs: dict[str, Any], **changes: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A rank's arguments with some of them changed, each where it was given."""
    places = {a.name: place for place, a in enumerate(call.op._schema.arguments[: len(args)])}
    changed = list(args)
    for name, value in changes.items():
        if name in places:
            changed[places[name]] = value
    return tuple(changed), kwargs | {name: value for name, value in changes.items() if name not in places}


def broadcast_split(shape: Shape, out: Shape, dim: int) -> Sbp:
    """How an operand of ``shape`` lies that broadcasts to ``out``, whose dim ``dim`` is split."""
    here = dim - (len(out) - len(shape))
    return split(here) if here >= 0 and shape[here] == out[dim] else BROADCAST


def kept(mask: Sequence[bool], outputs: Sequence[Sbp]) -> tuple[Sbp, ...]:
    """The layouts of the outputs of a backward op; one that its mask leaves out is no tensor and counts as whole."""
    return tuple(sbp if wanted else BROADCAST for wanted, sbp in zip(mask, outputs))
