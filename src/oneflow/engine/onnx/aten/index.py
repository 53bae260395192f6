"""Emitters of aten ops that read and write by index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from oneflow.engine.core.errors import UnsupportedError
from oneflow.engine.onnx.aten.builder import AtenBuilder, Number
from oneflow.engine.onnx.aten.family import AtenEmitters, place
from oneflow.engine.onnx.aten.reduce import with_dims
from oneflow.engine.onnx.builder import Operand, Wire

EMITTERS = AtenEmitters()

EMITTERS.cannot(
    "the size of its result depends on values; use torch.where or masked_fill, which keep the shape",
    *(
        "nonzero.default",
        "masked_select.default",
        "_unique2.default",
        "unique_dim.default",
        "bincount.default",
        "nonzero_static.default",
    ),
)
EMITTERS.cannot("which element goes where depends on how many came before; use torch.where", "masked_scatter.default")


def _places(b: AtenBuilder, index: Wire) -> Wire:
    return b.cast(index, torch.int64)


@EMITTERS.row("embedding.default")
def embedding(
    b: AtenBuilder,
    weight: Operand,
    indices: Operand,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Wire:
    return b.node("Gather", weight, _places(b, indices), axis=0)


@EMITTERS.row("index_select.default")
def index_select(b: AtenBuilder, x: Operand, dim: int, index: Operand) -> Wire:
    source = with_dims(b, x)
    return b.reshape_like(b.node("Gather", source, _places(b, index), axis=place(dim, x.rank)), b.result)


@EMITTERS.row("gather.default")
def gather(b: AtenBuilder, x: Operand, dim: int, index: Operand, *, sparse_grad: bool = False) -> Wire:
    source, where = with_dims(b, x), with_dims(b, index)
    return b.reshape_like(b.node("GatherElements", source, _places(b, where), axis=place(dim, x.rank)), b.result)


@EMITTERS.row("take.default")
def take(b: AtenBuilder, x: Operand, index: Operand) -> Wire:
    return b.node("Gather", b.reshape(x, [-1]), _places(b, index), axis=0)


# x[i, :, j] and x[i, :, j] = y.


@dataclass(frozen=True)
class Indexed:
    """How the dims of ``x[indices]`` stand: the dims that are indexed, the others, and where the indices' own dims
    go."""

    dims: list[int]
    others: list[int]
    rank: int
    front: int

    @property
    def order(self) -> list[int]:
        """The permutation of x that puts the indexed dims first."""
        return self.dims + self.others

    def from_front(self) -> list[int]:
        """The permutation from (indices' dims, others) to the dims of ``x[indices]``."""
        moved = list(range(self.rank, self.rank + len(self.others)))
        return moved[: self.front] + list(range(self.rank)) + moved[self.front :]


def _indexed(x: Operand, indices: list[Operand | None], rank: int) -> Indexed:
    """The indices' dims stand where the first indexed dim stood if those are side by side, else in front."""
    dims = [dim for dim, index in enumerate(indices) if index is not None]
    others = [dim for dim in range(x.rank) if dim not in dims]
    is_side_by_side = dims == list(range(dims[0], dims[0] + len(dims)))
    return Indexed(dims, others, rank, dims[0] if is_side_by_side else 0)


def _together(b: AtenBuilder, indices: list[Operand]) -> Wire:
    """The indices, broadcast to one shape, side by side along a new last dim."""
    wires = [_places(b, index) for index in indices]
    if len({(index.shape, index.batch_dims) for index in indices}) > 1:
        total = wires[0]
        for wire in wires[1:]:
            total = b.node("Add", total, wire)
        wires = [b.node("Expand", wire, b.shape(total)) for wire in wires]
    return b.node("Concat", *(b.unsqueeze(wire, -1) for wire in wires), axis=-1)


def _given(indices: list[Operand | None]) -> list[Operand]:
    found = [index for index in indices if index is not None]
    if any(index.dtype in (torch.bool, torch.uint8) for index in found):
        raise UnsupportedError(
            "a mask as index, of which the number of elements depends on values; use torch.where or masked_fill"
        )
    return found


@EMITTERS.row("index.Tensor", "_unsafe_index.Tensor")
def index(b: AtenBuilder, x: Operand, indices: list[Operand | None]) -> Wire:
    given = _given(indices)
    shape = _indexed(x, indices, max(i.rank for i in given))
    if len(given) == 1:
        return b.node("Gather", x, _places(b, given[0]), axis=shape.dims[0])
    found = b.node("GatherND", b.transpose(x, shape.order), _together(b, given))
    return b.transpose(found, shape.from_front())


@EMITTERS.row("index_put.default", "_unsafe_index_put.default")
def index_put(
    b: AtenBuilder, x: Operand, indices: list[Operand | None], values: Operand, accumulate: bool = False
) -> Wire:
    if indices[0] is not None and indices[0].dtype == torch.bool and len(indices) == 1:
        return _put_mask(b, x, indices[0], values, accumulate)
    given = _given(indices)
    shape = _indexed(x, indices, max(i.rank for i in given))
    front, together = b.transpose(x, shape.order), _together(b, given)
    target = b.node("GatherND", front, together)  # for its shape: what is written has it
    laid = b.shape(b.transpose(target, shape.from_front()))
    back = [shape.from_front().index(dim) for dim in range(shape.rank + len(shape.others))]
    update = b.transpose(b.node("Expand", b.cast(values, x.dtype), laid), back)
    written = b.node("ScatterND", front, together, update, **_sum(b, accumulate))
    return b.transpose(written, [shape.order.index(dim) for dim in range(x.rank)])


def _put_mask(b: AtenBuilder, x: Operand, mask: Operand, values: Operand, accumulate: bool) -> Wire:
    if accumulate or torch.Size(values.shape).numel() != 1:
        raise UnsupportedError(
            "several values for a mask as index, of which the number depends on values; use torch.where"
        )
    new = x.rank - mask.rank
    wide = b.unsqueeze(mask, *range(mask.rank, x.rank)) if new else mask
    return b.where(wide, b.reshape(b.cast(values, x.dtype), []), x)


def _sum(b: AtenBuilder, accumulate: bool) -> dict[str, Any]:
    return _reduction(b, "add", 16) if accumulate else {}


def _reduction(b: AtenBuilder, kind: str, least: int) -> dict[str, Any]:
    if b.opset < least:
        raise UnsupportedError(
            f"what is scattered is combined ({kind!r}) since opset {least}, this is {b.opset}; export with "
            f"opset={least}"
        )
    return {"reduction": kind}


# Scatter along one dim.

_REDUCTIONS = {
    "sum": ("add", 16),
    "add": ("add", 16),
    "prod": ("mul", 16),
    "multiply": ("mul", 16),
    "amax": ("max", 18),
    "amin": ("min", 18),
}


def _scatter(b: AtenBuilder, x: Operand, dim: int, index: Operand, source: Wire, attributes: dict[str, Any]) -> Wire:
    target, where = with_dims(b, x), with_dims(b, index)
    made = b.node("ScatterElements", target, _places(b, where), source, axis=place(dim, x.rank), **attributes)
    return made if x.rank else b.reshape(made, [])


def _fitting(b: AtenBuilder, source: Operand, index: Operand, dtype: torch.dtype) -> Wire:
    """The part of the source that the index has places for."""
    part: Wire = b.cast(with_dims(b, source), dtype)
    for dim in range(source.rank):
        if source.shape[dim] != index.shape[dim] or (dim in source.batch_dims) != (dim in index.batch_dims):
            part = b.node("Slice", part, b.ints([0]), b.vector([b.sizes_of(index)[dim]]), b.ints([dim]))
    return part


@EMITTERS.row("scatter.src")
def scatter(b: AtenBuilder, x: Operand, dim: int, index: Operand, src: Operand) -> Wire:
    return _scatter(b, x, dim, index, _fitting(b, src, index, x.dtype), {})


@EMITTERS.row("scatter.value")
def scatter_value(b: AtenBuilder, x: Operand, dim: int, index: Operand, value: Number) -> Wire:
    return _scatter(b, x, dim, index, b.filled(value, x.dtype, b.sizes_of(with_dims(b, index))), {})


@EMITTERS.row("scatter_add.default")
def scatter_add(b: AtenBuilder, x: Operand, dim: int, index: Operand, src: Operand) -> Wire:
    return _scatter(b, x, dim, index, _fitting(b, src, index, x.dtype), _reduction(b, "add", 16))


@EMITTERS.row("scatter_reduce.two", "scatter.reduce")
def scatter_reduce(
    b: AtenBuilder, x: Operand, dim: int, index: Operand, src: Operand, reduce: str, *, include_self: bool = True
) -> Wire:
    if reduce not in _REDUCTIONS or not include_self:
        raise UnsupportedError(
            f"ONNX has no scatter_reduce {reduce!r} with include_self={include_self}; use sum, prod, amax or amin that "
            f"include it"
        )
    return _scatter(b, x, dim, index, _fitting(b, src, index, x.dtype), _reduction(b, *_REDUCTIONS[reduce]))


# Whole slices along one dim.


def _rows(b: AtenBuilder, x: Operand, dim: int, index: Operand, update: Wire, attributes: dict[str, Any]) -> Wire:
    """x with slices along ``dim`` written: ScatterND does it along the first dim."""
    axis = place(dim, x.rank)
    perm = [axis, *(d for d in range(x.rank) if d != axis)]
    back = [perm.index(d) for d in range(x.rank)]
    where = b.unsqueeze(_places(b, with_dims(b, index)), -1)
    return b.transpose(b.node("ScatterND", b.transpose(x, perm), where, b.transpose(update, perm), **attributes), back)


@EMITTERS.row("index_add.default")
def index_add(b: AtenBuilder, x: Operand, dim: int, index: Operand, source: Operand, *, alpha: Number = 1) -> Wire:
    update = source if alpha == 1 else b.arithmetic("Mul", source, alpha)
    return _rows(b, x, dim, index, update, _reduction(b, "add", 16))


@EMITTERS.row("index_copy.default")
def index_copy(b: AtenBuilder, x: Operand, dim: int, index: Operand, source: Operand) -> Wire:
    return _rows(b, x, dim, index, source, {})


@EMITTERS.row("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(b: AtenBuilder, x: Operand, dim: int, index: Operand, value: Operand | Number) -> Wire:
    slices = b.node("Gather", x, _places(b, with_dims(b, index)), axis=place(dim, x.rank))
    return _rows(b, x, dim, index, b.node("Expand", b.typed(value, x.dtype), b.shape(slices)), {})
