"""What an SBP rule is: the ways in which one aten op can run on parts of its tensors.

A rule looks at one call of an op, with its logical (whole) shapes, and lists signatures: how the inputs lie over one axis of a
placement, and how the outputs then lie. Running on whole tensors (all B) is always possible and is not listed. For most
signatures each rank calls the op on its parts; a ``lower`` builds other nodes where that would not be right.

Rules know nothing of jobs, ranks or processes: one table keyed by aten op.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import fx

from oneflow.core.sbp import BROADCAST, Sbp

Shape = tuple[int, ...]


class Call:
    """One call of an op as a rule sees it: logical shapes, and the arguments by the names of the op's schema.

    ``inputs`` are the tensor arguments in order of appearance (those inside lists included, a tensor given twice counted twice).
    ``parts`` is the number of ranks along the axis in question.
    """

    def __init__(self, node: fx.Node, parts: int) -> None:
        self.node = node
        self.parts = parts
        self.inputs = tensor_arguments(node)

    @property
    def target(self) -> Any:
        return self.node.target

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """The logical shape of each input."""
        return tuple(tuple(n.meta["val"].shape) for n in self.inputs)

    @cached_property
    def outputs(self) -> tuple[Shape, ...]:
        """The logical shape of each output; () stands for an output that is no tensor."""
        value = self.node.meta["val"]
        values = value if isinstance(value, (tuple, list)) else (value,)
        return tuple(tuple(v.shape) if v is not None else () for v in values)

    @property
    def out(self) -> Shape:
        """The logical shape of the first output."""
        return self.outputs[0]

    @cached_property
    def _named(self) -> dict[str, Any]:
        schema = self.target._schema.arguments
        named = {a.name: a.default_value for a in schema if a.has_default_value()}
        named.update({a.name: value for a, value in zip(schema, self.node.args)})
        return {**named, **self.node.kwargs}

    def arg(self, name: str) -> Any:
        """An argument by the name it has in the op's schema (a node where it is a tensor), or its default."""
        return self._named[name]

    def index(self, name: str) -> int | None:
        """The place in ``inputs`` of the tensor argument of that name; None when it was not given."""
        return _positions(self.target, self.node).get(name)


@dataclass(frozen=True)
class Signature:
    """One way to run an op along one axis: a layout for each input and each output.

    ``lower(local, call, args, kwargs)`` builds the nodes of one rank where calling the op on the parts is not enough; it gives
    the output's node (of a tuple for ops with several outputs), or a tuple of nodes. ``moved`` is how many bytes, of the
    whole tensors, its own collectives reduce or gather.
    """

    inputs: tuple[Sbp, ...]
    outputs: tuple[Sbp, ...]
    lower: Callable[[Local, Call, tuple[Any, ...], dict[str, Any]], Any] | None = None
    moved: int = 0


class Local(Protocol):
    """Builds the nodes of one rank. Shapes are those of this rank's parts, over all axes of the placement."""

    def call(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """A new node."""

    def shape(self, output: int = 0) -> Shape:
        """The shape of this rank's part of an output."""

    def start(self, output: int = 0) -> Shape:
        """Where in the whole output this rank's part begins, dim by dim."""

    def input_shape(self, index: int) -> Shape:
        """The shape of this rank's part of an input."""

    def input_start(self, index: int) -> Shape:
        """Where in the whole input this rank's part begins."""

    def input_shapes(self, index: int) -> list[Shape]:
        """The shape of the part of each rank that ``gather`` gathers from, in its order."""

    def reduce(self, value: fx.Node, how: str = "sum") -> fx.Node:
        """The elementwise "sum", "max", "min" or "product" over the ranks of the axes that chose this lowering."""

    def gather(self, value: fx.Node) -> fx.Node:
        """The values of those ranks, which have equal shapes, stacked along a new first dim."""

    @property
    def place(self) -> int:
        """The place of this rank among those ranks."""

    @property
    def is_first(self) -> bool:
        """True on the first of those ranks."""


Signatures = Callable[[Call], Iterable[Signature]]
Localise = Callable[[Local, Call, tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]


@dataclass(frozen=True)
class Rule:
    """``localise`` changes arguments that speak of whole shapes (the size of a view) to those of a rank; used in every signature
    without a ``lower`` of its own, also when nothing is split."""

    signatures: Signatures
    localise: Localise | None = None


class Rules:
    """The rules of one family, by aten op."""

    def __init__(self) -> None:
        self.by_op: dict[Any, Rule] = {}

    def rule(self, *ops: Any, localise: Localise | None = None) -> Callable[[Signatures], Signatures]:
        """Decorator: makes the function below it the rule of these ops."""

        def add(signatures: Signatures) -> Signatures:
            for op in ops:
                assert op not in self.by_op, f"two rules for {op}"
                self.by_op[op] = Rule(signatures, localise)
            return signatures

        return add


def tensor_arguments(node: fx.Node) -> tuple[fx.Node, ...]:
    """The tensor arguments of a node in order of appearance."""
    found: list[fx.Node] = []
    fx.node.map_arg((node.args, node.kwargs), found.append)
    return tuple(found)


def _positions(target: Any, node: fx.Node) -> dict[str, int]:
    """Where in the flat list of tensors each named tensor argument comes; a list of tensors has the place of its first."""
    names = [a.name for a in target._schema.arguments][: len(node.args)] + list(node.kwargs)
    places, count = {}, 0
    for name, value in zip(names, [*node.args, *node.kwargs.values()]):
        held: list[fx.Node] = []
        fx.node.map_arg(value, held.append)
        if held:
            places[name] = count
        count += len(held)
    return places


def whole(call: Call) -> Signature:
    """Every input and output whole on every rank."""
    return Signature((BROADCAST,) * len(call.inputs), (BROADCAST,) * len(call.outputs))


def is_float(node: fx.Node) -> bool:
    """Whether a node's value is of a floating-point dtype: only such can be partial sums."""
    value = node.meta["val"]
    return isinstance(value.dtype, torch.dtype) and value.dtype.is_floating_point


def dims_of(shape: Sequence[int], parts: int) -> list[int]:
    """The dims that can be split over ``parts`` ranks: each rank must get something."""
    return [d for d, size in enumerate(shape) if size >= parts]
