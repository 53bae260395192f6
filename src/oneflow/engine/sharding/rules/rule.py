"""What an SBP rule (sharding rule) is: the ways in which one aten op can run on parts of its tensors.

A rule looks at one call of an op, with its logical (whole) shapes, and lists signatures: how the inputs lie over one
axis of a placement, and how the outputs then lie. Running on whole tensors (all B) is always possible and is not
listed. For most signatures each rank calls the op on its parts; a ``lower`` makes other calls where that would not be
right.

Rules know nothing of jobs, ranks or processes: one table keyed by aten op.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from oneflow.engine.core.sbp import BROADCAST, Sbp
from oneflow.engine.sharding.call import Call, Shape, TensorLike
from oneflow.engine.sharding.mesh import NdSbp

aten = torch.ops.aten
# A part of a tensor may have other strides than the whole; reshape takes any.
ANY_STRIDES: dict[Any, Any] = {aten.view.default: aten.reshape.default, aten._unsafe_view.default: aten.reshape.default}

Value = Any  # what whoever asks has as one rank's value of a tensor: a node of a graph, a tensor


@dataclass(frozen=True)
class Signature:
    """One way to run an op along one axis: a layout for each input and each output.

    ``lower(local, call, args, kwargs)`` makes the calls of one rank where calling the op on the parts is not enough; it
    gives the value of the output (of a tuple for ops with several outputs), or a tuple of values. ``moved`` is how many
    bytes, of the whole tensors, its own collectives reduce or gather, ``touched`` how many the lowering reads and
    writes beyond what the op does.
    """

    inputs: tuple[Sbp, ...]
    outputs: tuple[Sbp, ...]
    lower: Callable[[Local, Call, tuple[Any, ...], dict[str, Any]], Any] | None = None
    moved: int = 0
    touched: int = 0


class Local(Protocol):
    """Makes the calls of one rank. Shapes are those of this rank's parts, over all axes of the placement."""

    def call(self, function: Any, *args: Any, **kwargs: Any) -> Value:
        """The value of a call of a function on values of this rank."""

    def shape(self, output: int = 0) -> Shape:
        """The shape of this rank's part of an output."""

    def start(self, output: int = 0) -> Shape:
        """Where in the whole output this rank's part begins, dim by dim."""

    def input_shape(self, index: int) -> Shape:
        """The shape of this rank's part of an input."""

    def input_start(self, index: int) -> Shape:
        """Where in the whole input this rank's part begins."""

    def reduce(self, value: Value, how: str = "sum") -> Value:
        """The elementwise "sum", "max", "min" or "product" over the ranks of the axes that chose this lowering."""

    @property
    def place(self) -> int:
        """The place of this rank among those ranks."""


Signatures = Callable[[Call], Iterable[Signature]]
Localise = Callable[[Local, Call, tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]


@dataclass(frozen=True)
class Rule:
    """``localise`` changes arguments that speak of whole shapes (the size of a view) to those of a rank; used in every
    signature without a ``lower`` of its own, also when nothing is split."""

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


def layouts(chosen: Sequence[Signature]) -> tuple[list[NdSbp], list[NdSbp]]:
    """The layouts of the inputs and of the outputs of a call that runs by one signature per axis."""
    return list(zip(*(s.inputs for s in chosen))), list(zip(*(s.outputs for s in chosen)))


def whole(call: Call) -> Signature:
    """Every input and output whole on every rank."""
    return Signature((BROADCAST,) * len(call.inputs), (BROADCAST,) * len(call.outputs))


def is_float(tensor: TensorLike) -> bool:
    """Whether a tensor is of a floating-point dtype: only such can be partial sums."""
    return tensor.dtype.is_floating_point


def dims_of(shape: Sequence[int], parts: int) -> list[int]:
    """The dims that can be split over ``parts`` ranks: each rank must get something."""
    return [d for d, size in enumerate(shape) if size >= parts]
