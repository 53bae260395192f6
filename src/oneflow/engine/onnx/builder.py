"""The ONNX nodes of one op, while its emitter makes them.

Nothing here needs the ``onnx`` package: nodes and constants are plain values that ``model.py`` turns into a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from oneflow.engine.core.errors import UnsupportedError

# The numbers of ONNX's TensorProto.DataType, which are part of the file format.
TENSOR_TYPES = {
    torch.float32: 1,
    torch.uint8: 2,
    torch.int8: 3,
    torch.int32: 6,
    torch.int64: 7,
    torch.bool: 9,
    torch.float16: 10,
    torch.float64: 11,
    torch.bfloat16: 16,
}
_NARROW = (torch.int8, torch.uint8)


@dataclass(frozen=True)
class Wire:
    """A tensor of the ONNX graph."""

    name: str
    dtype: torch.dtype


@dataclass(frozen=True)
class Operand(Wire):
    """The tensor that a blob became. ``batch_dims`` are those whose size follows the batch and is not known in the
    file."""

    shape: tuple[int, ...]
    batch_dims: frozenset[int] = frozenset()

    @property
    def rank(self) -> int:
        return len(self.shape)

    def size(self, dim: int) -> int:
        """The size of one dim, to be written into the file."""
        if dim % self.rank in self.batch_dims:
            raise UnsupportedError(
                f"the size of dim {dim % self.rank} follows the batch, but what it computes needs it as a number in "
                f"the file; "
                "export with dynamic_batch=False"
            )
        return self.shape[dim]

    def sizes(self, dims: Sequence[int] | None = None) -> list[int]:
        """The sizes of these dims, or of all."""
        return [self.size(dim) for dim in (range(self.rank) if dims is None else dims)]


@dataclass(frozen=True)
class Node:
    """One ONNX node. ``domain`` is empty for ONNX's own operators."""

    kind: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    domain: str = ""


Input = Wire | int | float | None


class Builder:
    """Collects the nodes of the op ``name``. ``results`` are the tensors that it must make, by their final names.

    Helper nodes and constants are called ``<op>/<kind>_<number>``; ``finish`` gives the last node the name of the op.
    """

    def __init__(self, name: str, opset: int, results: tuple[Operand, ...]) -> None:
        self.name = name
        self.opset = opset
        self.results = results
        self.nodes: list[Node] = []
        self.constants: dict[str, torch.Tensor] = {}

    @property
    def result(self) -> Operand:
        """The one tensor that the op makes."""
        return self.results[0]

    def node(self, kind: str, *inputs: Input, dtype: torch.dtype | None = None, **attributes: Any) -> Wire:
        """A node with one output, of ``dtype`` or that of the first input.

        A Python number among the inputs becomes a constant of the first input's dtype; None leaves an optional input
        out.
        """
        return self.many(kind, inputs, [dtype or _dtype(inputs)], attributes)[0]

    def many(
        self, kind: str, inputs: Sequence[Input], dtypes: Sequence[torch.dtype], attributes: dict[str, Any]
    ) -> list[Wire]:
        """A node with an output for each of ``dtypes``."""
        name = f"{self.name}/{kind}_{len(self.nodes)}"
        names = [name] if len(dtypes) == 1 else [f"{name}:{i}" for i in range(len(dtypes))]
        given = tuple("" if x is None else self.wire(x, _dtype(inputs)).name for x in inputs)
        self.nodes.append(Node(kind, name, given, tuple(names), attributes))
        return [Wire(n, dtype) for n, dtype in zip(names, dtypes, strict=True)]

    def wire(self, value: Wire | int | float, dtype: torch.dtype) -> Wire:
        """The wire itself; a number as a scalar constant."""
        return value if isinstance(value, Wire) else self.constant(torch.tensor(value, dtype=dtype))

    def constant(self, value: torch.Tensor) -> Wire:
        """An initializer with this value."""
        name = f"{self.name}/constant_{len(self.constants)}"
        self.constants[name] = value
        return Wire(name, value.dtype)

    def ints(self, numbers: Sequence[int]) -> Wire:
        """An int64 vector, as shapes, axes and pads are given."""
        return self.constant(torch.tensor(list(numbers), dtype=torch.int64))

    def finish(self, made: Wire | Sequence[Wire]) -> None:
        """Gives what the emitter made the names of the results. What has a name already, an input or a constant, is
        copied."""
        wires = [made] if isinstance(made, Wire) else list(made)
        own = {name for node in self.nodes for name in node.outputs}
        named = [self.node("Identity", w) if w.name not in own or w in wires[:i] else w for i, w in enumerate(wires)]
        for i, (wire, result) in enumerate(zip(named, self.results, strict=True)):
            assert wire.dtype == result.dtype, (self.name, wire, result)
            self._rename(wire.name, result.name, self.name if i == 0 else None)

    def _rename(self, old: str, new: str, node_name: str | None) -> None:
        for i, node in enumerate(self.nodes):
            inputs, outputs = (tuple(new if n == old else n for n in names) for names in (node.inputs, node.outputs))
            name = node_name if node_name is not None and old in node.outputs else node.name
            self.nodes[i] = replace(node, name=name, inputs=inputs, outputs=outputs)

    # What many emitters say.

    def cast(self, x: Wire, dtype: torch.dtype) -> Wire:
        return x if x.dtype == dtype else self.node("Cast", x, dtype=dtype, to=TENSOR_TYPES[dtype])

    def arithmetic(self, kind: str, *inputs: Wire | int | float) -> Wire:
        """A node of numbers of one dtype. Runtimes lack most kernels of 8-bit integers, so those are computed in int32
        and wrap when cast back."""
        dtype = _dtype(inputs)
        return self.cast(self.node(kind, *self._widened(inputs, dtype)), dtype)

    def maximum(self, x: Wire, y: Wire | int | float) -> Wire:
        """The larger of numbers of one dtype. Max takes integers since opset 12."""
        if self.opset >= 12 or x.dtype.is_floating_point:
            return self.arithmetic("Max", x, y)
        return self.where(self.compare("Less", x, y), self.wire(y, x.dtype), x)

    def minimum(self, x: Wire, y: Wire | int | float) -> Wire:
        """The smaller of numbers of one dtype. Min takes integers since opset 12."""
        if self.opset >= 12 or x.dtype.is_floating_point:
            return self.arithmetic("Min", x, y)
        return self.where(self.compare("Greater", x, y), self.wire(y, x.dtype), x)

    def compare(self, kind: str, x: Wire | int | float, y: Wire | int | float) -> Wire:
        """``Equal``, ``Less`` or ``Greater`` of numbers, as a bool tensor."""
        return self.node(kind, *self._widened((x, y), _dtype((x, y))), dtype=torch.bool)

    def _widened(self, inputs: Sequence[Wire | int | float], dtype: torch.dtype) -> list[Wire]:
        wide = torch.int32 if dtype in _NARROW else dtype
        return [self.cast(x, wide) if isinstance(x, Wire) else self.wire(x, wide) for x in inputs]

    def truth(self, x: Wire) -> Wire:
        """x != 0."""
        return self.cast(x, torch.bool)

    def negate(self, x: Wire) -> Wire:
        """The opposite of a bool tensor."""
        return self.node("Not", x)

    def where(self, condition: Wire, x: Wire | int | float, y: Wire | int | float) -> Wire:
        dtype = _dtype((x, y))
        return self.node("Where", condition, self.wire(x, dtype), self.wire(y, dtype), dtype=dtype)

    def clip(self, x: Wire, low: float | int, high: float | int | None) -> Wire:
        """x held between two numbers; without the upper one if that is None."""
        if not x.dtype.is_floating_point:
            return self.maximum(x, low) if high is None else self.minimum(self.maximum(x, low), high)
        return self.node("Clip", x, low) if high is None else self.node("Clip", x, low, high)

    def transpose(self, x: Wire, perm: Sequence[int]) -> Wire:
        return x if list(perm) == sorted(perm) else self.node("Transpose", x, perm=list(perm))

    def reshape(self, x: Wire, shape: Sequence[int]) -> Wire:
        return self.node("Reshape", x, self.ints(shape))

    def reshape_like(self, x: Wire, like: Operand) -> Wire:
        """x in the shape of ``like``, of which one size may follow the batch."""
        if len(like.batch_dims) > 1:
            raise UnsupportedError("more than one dim of its result follows the batch; export with dynamic_batch=False")
        return self.reshape(x, [-1 if dim in like.batch_dims else n for dim, n in enumerate(like.shape)])

    def unsqueeze(self, x: Wire, *axes: int) -> Wire:
        if self.opset < 13:
            return self.node("Unsqueeze", x, axes=list(axes))
        return self.node("Unsqueeze", x, self.ints(axes))

    def shape(self, x: Wire) -> Wire:
        """The shape of x as an int64 tensor, known when the model runs."""
        return self.node("Shape", x, dtype=torch.int64)

    def reduce(self, kind: str, x: Wire, dims: Sequence[int], keepdims: bool = True) -> Wire:
        """``ReduceSum`` and its kin: the dims are an input since opset 18, those of ReduceSum since 13."""
        if self.opset >= (13 if kind == "ReduceSum" else 18):
            return self.node(kind, x, self.ints(dims), keepdims=int(keepdims))
        return self.node(kind, x, axes=list(dims), keepdims=int(keepdims))

    def slice(self, x: Wire, dim: int, start: int, stop: int, step: int = 1) -> Wire:
        return self.node("Slice", x, *(self.ints([n]) for n in (start, stop, dim, step)))

    def reverse(self, x: Wire, dims: Sequence[int]) -> Wire:
        """x with the order of its elements turned round along these dims."""
        if not dims:
            return x
        ends = [(-1, -(2**63), dim, -1) for dim in dims]
        return self.node("Slice", x, *(self.ints(numbers) for numbers in zip(*ends)))


def _dtype(inputs: Sequence[Input]) -> torch.dtype:
    """The dtype of the first wire."""
    return next(x.dtype for x in inputs if isinstance(x, Wire))
