"""Micro-batches by hand, as they were before ``train.num_gradient_accumulation_steps``: blobs are cut, or repeated, and
put together again."""

from __future__ import annotations

from oneflow.array._arguments import blob_of
from oneflow.array._shape import identity
from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.number import whole
from oneflow.engine.ir import micro
from oneflow.engine.ir.blob import Blob, emit
from oneflow.engine.ir.notes import change_op_note
from oneflow.engine.ir.trace import require_trace
from oneflow.engine.ops.elementwise import add_n
from oneflow.engine.ops.index import slice_v2


def acc(one: Blob, max_acc_num: int, name: str | None = None) -> Blob:
    """The sum of ``one`` over ``max_acc_num`` micro-batches, which ``unpack`` or ``repeat`` has made."""
    count = _count("acc", one, max_acc_num)
    if count == 1:
        return identity(one, name)
    made = emit(
        add_n, [Blob(node) for node in micro.copies(require_trace("flow.acc"), one.node, count, "flow.acc")], name=name
    )
    change_op_note(made.node, micro=1)
    return made


def pack(input: Blob, pack_num: int, name: str | None = None) -> Blob:
    """The values of ``pack_num`` micro-batches, which ``unpack`` or ``repeat`` has made, joined along the first
    axis."""
    count = _count("pack", input, pack_num)
    return (
        identity(input, name)
        if count == 1
        else Blob(micro.record_joined(micro.copies(require_trace("flow.pack"), input.node, count, "flow.pack"), name))
    )


def unpack(input: Blob, unpack_num: int, name: str | None = None) -> Blob:
    """``input`` cut along the first axis into ``unpack_num`` micro-batches. What follows runs for each of them, up to
    ``pack`` or ``acc``."""
    count = _count("unpack", input, unpack_num)
    if count == 1:
        return identity(input, name)
    if not input.shape or input.shape[0] % count:
        raise ArgumentError(f"unpack cuts the first axis into {count} equal parts, which that of {input!r} cannot be")
    first = emit(slice_v2, input, bounds=((0, input.shape[0] // count, 1),), name=name)
    micro.begin(first.node, count)
    return first


def repeat(input: Blob, repeat_num: int, name: str | None = None) -> Blob:
    """``input``, given to each of ``repeat_num`` micro-batches. What follows runs for each of them, up to ``pack`` or
    ``acc``."""
    count = _count("repeat", input, repeat_num)
    first = identity(input, name)
    if count > 1:
        micro.begin(first.node, count)
    return first


def _count(what: str, x: Blob, count: int) -> int:
    blob_of(what, x)
    return whole(f"{what}'s number of micro-batches", count, above=0)
