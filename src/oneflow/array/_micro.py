"""Micro-batches by hand, as they were before ``train.num_gradient_accumulation_steps``."""

from __future__ import annotations

from oneflow.array._arguments import blob_of
from oneflow.array._shape import identity
from oneflow.core.errors import UnsupportedError
from oneflow.core.number import whole
from oneflow.ir.blob import Blob


def acc(one: Blob, max_acc_num: int, name: str | None = None) -> Blob:
    """The sum of ``one`` over ``max_acc_num`` micro-batches; of one, the blob itself. More are the work of the job's settings."""
    return _of_one("acc", one, max_acc_num, name)


def pack(input: Blob, pack_num: int, name: str | None = None) -> Blob:
    """The values of ``pack_num`` micro-batches joined along the first axis; of one, the blob itself."""
    return _of_one("pack", input, pack_num, name)


def unpack(input: Blob, unpack_num: int, name: str | None = None) -> Blob:
    """``input`` cut along the first axis into ``unpack_num`` micro-batches; into one, the blob itself."""
    return _of_one("unpack", input, unpack_num, name)


def repeat(input: Blob, repeat_num: int, name: str | None = None) -> Blob:
    """``input`` given to each of ``repeat_num`` micro-batches; to one, the blob itself."""
    return _of_one("repeat", input, repeat_num, name)


def _of_one(what: str, x: Blob, count: int, name: str | None) -> Blob:
    if whole(f"{what}'s number of micro-batches", count, above=0) > 1:
        raise UnsupportedError(
            f"flow.{what} over {count} micro-batches: a job is cut into micro-batches as a whole, with "
            f"function_config().train.num_gradient_accumulation_steps({count}); leave flow.{what} out"
        )
    return identity(blob_of(what, x), name)
