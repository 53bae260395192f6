"""Emitters of ``oneflow.engine.ops.array``."""

from __future__ import annotations

import torch

from oneflow.engine.onnx.builder import Builder, Operand, Wire
from oneflow.engine.onnx.family import Emitters
from oneflow.engine.onnx.rows.conv import flat_pads
from oneflow.engine.onnx.rows.elementwise import Operands, wires
from oneflow.engine.ops.array import axes_of, axis_of

EMITTERS = Emitters()

EMITTERS.plain("identity", "Identity")
EMITTERS.plain("amp_white_identity", "Identity")
EMITTERS.cannot("assign", "an ONNX model has no variables that a step could write")

for _name in ("reshape", "reshape_like", "flatten", "expand_dims", "squeeze"):
    # What the result's shape is was found when the job was traced; the other arguments say nothing more.
    EMITTERS.add(_name, lambda b, x, *_, **__: b.reshape_like(x, b.result))


@EMITTERS.row("cast")
def cast(b: Builder, x: Operand, dtype: torch.dtype) -> Wire:
    return b.cast(x, dtype)


@EMITTERS.row("transpose")
def transpose(b: Builder, x: Operand, perm: tuple[int, ...]) -> Wire:
    return b.node("Transpose", x, perm=list(axes_of(perm, x.rank)))


@EMITTERS.row("reverse")
def reverse(b: Builder, x: Operand, axis: tuple[int, ...]) -> Wire:
    return b.reverse(x, axes_of(axis, x.rank))


@EMITTERS.row("concat")
def concat(b: Builder, inputs: list[Operand], axis: int) -> Wire:
    return b.node("Concat", *inputs, axis=axis_of(axis, inputs[0].rank))


@EMITTERS.row("stack")
def stack(b: Builder, inputs: list[Operand], axis: int) -> Wire:
    dim = axis_of(axis, inputs[0].rank + 1)
    return b.node("Concat", *(b.unsqueeze(x, dim) for x in inputs), axis=dim)


@EMITTERS.row("pad")
def pad(b: Builder, x: Operand, paddings: tuple[tuple[int, int], ...], constant_value: float) -> Wire:
    return b.node("Pad", x, b.ints(flat_pads(paddings)), constant_value, mode="constant")


@EMITTERS.row("reflection_pad2d")
def reflection_pad2d(b: Builder, x: Operand, padding: tuple[int, int, int, int]) -> Wire:
    left, right, top, bottom = padding
    return b.node("Pad", x, b.ints(flat_pads(((0, 0), (0, 0), (top, bottom), (left, right)))), mode="reflect")


@EMITTERS.row("replication_pad2d")
def replication_pad2d(b: Builder, x: Operand, padding: tuple[int, int, int, int]) -> Wire:
    left, right, top, bottom = padding
    return b.node("Pad", x, b.ints(flat_pads(((0, 0), (0, 0), (top, bottom), (left, right)))), mode="edge")


@EMITTERS.row("expand")
def expand(b: Builder, x: Operand, size: tuple[int, ...]) -> Wire:
    return b.node("Expand", x, b.ints([1 if n == -1 else n for n in size]))  # 1 keeps what is there


EMITTERS.cannot("diag", "ONNX has no operator for diagonals; flow.math.multiply by a constant matrix does the same")


@EMITTERS.row("where")
def where(b: Builder, condition: Operand, x: Operands, y: Operands) -> Wire:
    return b.where(b.truth(condition), *wires(b, x, y))


@EMITTERS.row("masked_fill")
def masked_fill(b: Builder, x: Operand, mask: Operand, value: float) -> Wire:
    return b.where(b.truth(mask), b.wire(value, x.dtype), x)


@EMITTERS.row("broadcast_like")
def broadcast_like(b: Builder, x: Operand, like: Operand, broadcast_axes: tuple[int, ...] | None) -> Wire:
    if broadcast_axes is not None and x.rank < like.rank:
        x_like = Operand(x.name, x.dtype, *_with_axes(like, axes_of(broadcast_axes, like.rank)))
        return b.node("Expand", b.reshape_like(x, x_like), b.shape(like))
    return b.node("Expand", x, b.shape(like))


def _with_axes(like: Operand, axes: tuple[int, ...]) -> tuple[tuple[int, ...], frozenset[int]]:
    """The shape of ``like`` with 1 at these axes."""
    return tuple(1 if dim in axes else n for dim, n in enumerate(like.shape)), like.batch_dims - set(axes)


@EMITTERS.row("broadcast_to_compatible_with")
def broadcast_to_compatible_with(b: Builder, x: Operand, compatible: list[Operand]) -> Wire:
    value: Wire = x
    for other in compatible:
        value = b.node("Expand", value, b.shape(other))
    return value


@EMITTERS.row("count_not_finite")
def count_not_finite(b: Builder, x: Operand) -> Wire:
    """Of integers all are finite."""
    if not x.dtype.is_floating_point:
        return b.ints([0])
    # ONNX Runtime looks for infinities in float32 and float64 only.
    wide = x if x.dtype in (torch.float32, torch.float64) else b.cast(x, torch.float32)
    found = b.node("Or", b.node("IsNaN", wide, dtype=torch.bool), b.node("IsInf", wide, dtype=torch.bool))
    count = b.reduce("ReduceSum", b.cast(found, torch.int64), range(x.rank), keepdims=False)
    return b.reshape(count, [1])
