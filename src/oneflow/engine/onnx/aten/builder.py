"""The ONNX nodes of one aten op, with torch's rules of dtypes and with sizes that follow the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from oneflow.engine.core.errors import UnsupportedError
from oneflow.engine.onnx.builder import Builder, Operand, Wire

Number = int | float | bool


@dataclass(frozen=True)
class Times:
    """A number of the trace that follows the batch: ``count`` times its size."""

    count: int


Size = int | Times


@dataclass(frozen=True)
class Batch:
    """The batch size: an int64 vector of one element that the model reads from an input, and what it was in the
    trace."""

    wire: Wire
    size: int


@dataclass(frozen=True)
class BatchSource:
    """The input that a model reads the batch size from: the size of dim ``axis``, divided by ``divisor``."""

    input: str
    axis: int = 0
    divisor: int = 1

    @property
    def wire(self) -> Wire:
        """The batch size as an int64 vector of one element."""
        return Wire(f"{self.input}/batch", torch.int64)


class AtenBuilder(Builder):
    """Collects the nodes of one aten op. ``wanted`` are the results that something uses; ``batch`` is None where all
    sizes are known."""

    def __init__(
        self, name: str, opset: int, results: tuple[Operand, ...], wanted: frozenset[int], batch: Batch | None = None
    ) -> None:
        super().__init__(name, opset, results)
        self.wanted = wanted
        self.batch = batch

    # Sizes.

    def sizes_of(self, x: Operand) -> list[Size]:
        """The shape of x with the sizes that follow the batch as such."""
        return [self._size(x, dim) for dim in range(x.rank)]

    def _size(self, x: Operand, dim: int) -> Size:
        if dim not in x.batch_dims:
            return x.shape[dim]
        assert self.batch is not None
        return Times(x.shape[dim] // self.batch.size)

    def vector(self, sizes: Sequence[Size]) -> Wire:
        """An int64 vector of sizes, computed when the model runs where they follow the batch."""
        if not any(isinstance(size, Times) for size in sizes):
            return self.ints([size for size in sizes if isinstance(size, int)])
        return self.node("Concat", *(self._one(size) for size in sizes), axis=0)

    def _one(self, size: Size) -> Wire:
        if isinstance(size, int):
            return self.ints([size])
        assert self.batch is not None
        return self.batch.wire if size.count == 1 else self.node("Mul", self.batch.wire, self.ints([size.count]))

    def scalar(self, size: Size | float, dtype: torch.dtype) -> Wire:
        """A number without dims, of ``dtype``."""
        if isinstance(size, Times):
            return self.cast(self.reshape(self._one(size), []), dtype)
        return self.wire(size, dtype)

    def reshape_like(self, x: Wire, like: Operand) -> Wire:
        """x in the shape of ``like``, of which several sizes may follow the batch."""
        zero: dict[str, Any] = {"allowzero": 1} if 0 in like.shape and self.opset >= 14 else {}
        if len(like.batch_dims) == 1 and not zero:
            return super().reshape_like(x, like)
        return self.node("Reshape", x, self.vector(self.sizes_of(like)), **zero)

    def expand_like(self, x: Wire, like: Operand) -> Wire:
        """x broadcast to the shape of ``like``."""
        return self.node("Expand", x, self.vector(self.sizes_of(like)))

    def count(self, x: Operand, dims: Sequence[int], dtype: torch.dtype) -> Wire:
        """The number of elements along these dims."""
        if not x.batch_dims & set(dims):
            return self.wire(prod(x.shape[dim] for dim in dims), dtype)
        sizes = self.node("Gather", self.shape(x), self.ints(dims), axis=0)
        return self.cast(self.reduce("ReduceProd", sizes, [0], keepdims=False), dtype)

    def filled(self, value: Number, dtype: torch.dtype, sizes: Sequence[Size]) -> Wire:
        """A tensor of one value."""
        if not sizes:
            return self.constant(torch.tensor(value, dtype=dtype))
        return self.node("ConstantOfShape", self.vector(sizes), dtype=dtype, value=torch.tensor([value], dtype=dtype))

    # Dtypes.

    def typed(self, value: Wire | Number, dtype: torch.dtype) -> Wire:
        """A tensor cast to ``dtype``, or a number of it."""
        return self.cast(value, dtype) if isinstance(value, Wire) else self.wire(value, dtype)

    def promoted(self, *values: Operand | Number) -> list[Wire]:
        """The operands in the dtype that torch computes with them in."""
        dtype = common_dtype(*values)
        return [self.typed(value, dtype) for value in values]

    def where(self, condition: Wire, x: Wire | int | float, y: Wire | int | float) -> Wire:
        """ONNX Runtime has no choice between bools: those are combined."""
        if not any(isinstance(value, Wire) and value.dtype == torch.bool for value in (x, y)):
            return super().where(condition, x, y)
        first, second = self.wire(x, torch.bool), self.wire(y, torch.bool)
        return self.node("Or", self.node("And", condition, first), self.node("And", self.negate(condition), second))

    def gathered(self, x: Wire, index: int, dim: int) -> Wire:
        """One slice of x, without that dim."""
        return self.node("Gather", x, self.constant(torch.tensor(index, dtype=torch.int64)), axis=dim)

    def squeeze(self, x: Wire, *axes: int) -> Wire:
        if self.opset < 13:
            return self.node("Squeeze", x, axes=list(axes))
        return self.node("Squeeze", x, self.ints(axes))

    def split(self, x: Wire, sizes: Sequence[Size], dim: int) -> list[Wire]:
        """x cut into parts of these sizes."""
        if len(sizes) == 1:
            return [x]
        dtypes = [x.dtype] * len(sizes)
        if self.opset < 13:
            if any(isinstance(size, Times) for size in sizes):
                raise UnsupportedError(
                    f"parts whose sizes follow the batch are there since opset 13, this is {self.opset}; export with "
                    f"opset=13"
                )
            return self.many("Split", [x], dtypes, {"axis": dim, "split": list(sizes)})
        return self.many("Split", [x, self.vector(sizes)], dtypes, {"axis": dim})


def common_dtype(*values: Operand | Number) -> torch.dtype:
    """``torch.result_type``: by category first, then tensors with dims, numbers without, Python's numbers."""
    found = [_like(value) for value in values]
    if len(found) == 1:
        return torch.result_type(found[0], found[0])
    dtype = torch.result_type(found[0], found[1])
    for value in values[2:]:
        dtype = torch.promote_types(dtype, torch.result_type(found[0], _like(value)))
    return dtype


def _like(value: Operand | Number) -> torch.Tensor | Number:
    return torch.empty(value.shape, dtype=value.dtype, device="meta") if isinstance(value, Operand) else value
