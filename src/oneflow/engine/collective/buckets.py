"""Buckets (gradient bucketing): tensors that are summed over ranks together, by one all-reduce, begun when the last of
them is there and waited for when the first is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from oneflow.engine.collective.groups import Ranks, group_of
from oneflow.engine.collective.host_group import host_of
from oneflow.engine.collective.peers import meeting
from oneflow.engine.collective.shared_sum import SharedSum
from oneflow.engine.core.shared_memory import aligned


@dataclass(frozen=True)
class Bucket:
    """A bucket as a program names it: its number in the program, and the ranks that sum.

    It ``is_common`` when the ranks always run the same program, so that they meet in this bucket and no other.
    ``channels_last`` are the places of the values that it holds in that memory format; all others are contiguous. The
    strides of a value do not decide: the kernels of two ranks may return the same gradient in different strides.
    """

    number: int
    ranks: Ranks
    is_common: bool = True
    channels_last: tuple[int, ...] = ()


class RunningBucket:
    """A bucket as an executor has it: one flat buffer, laid out for the values in the first step, and one sum per
    step."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._shared: SharedSum | None = None
        self._flat: Tensor | None = None
        self._rooms: list[Tensor] = []
        self._sums: list[Tensor] = []

    @property
    def is_shared(self) -> bool:
        """Whether the sums go through memory that the ranks share; False before the first."""
        return self._shared is not None

    def room(self, place: int) -> Tensor | None:
        """Where the value of that place will lie; None as long as that is not known. What is made there need not be
        copied."""
        return self._rooms[place] if self._rooms else None

    def start(self, values: Sequence[Tensor]) -> Any:
        """Has the values in the buffer and begins their sum over the ranks."""
        if not self._rooms:
            self._lay_out(values)
        for room, value in zip(self._rooms, values):
            if room is not value:
                room.copy_(value)
        if self._shared is not None:
            return self._shared.begin()
        with meeting(self._bucket.ranks):
            return dist.all_reduce(self._flat, group=group_of(self._bucket.ranks), async_op=True)

    def wait(self, begun: Any) -> list[Tensor]:
        """The sums, each in the memory format of its place."""
        if self._shared is not None:
            self._shared.finish(begun)
        else:
            with meeting(self._bucket.ranks):
                begun.wait()
        return self._sums

    def _lay_out(self, values: Sequence[Tensor]) -> None:
        count, first = sum(map(_room_for, values)), values[0]
        host = host_of(self._bucket.ranks, first, self._bucket.is_common)
        if host is not None:
            self._shared = SharedSum(host, count, first.dtype)
        self._flat = first.new_empty(count) if self._shared is None else self._shared.row
        self._rooms = self._parts(self._flat, values)
        self._sums = self._rooms if self._shared is None else self._parts(self._shared.sum, values)

    def _parts(self, flat: Tensor, values: Sequence[Tensor]) -> list[Tensor]:
        """Consecutive parts of a flat tensor, each shaped like a value."""
        parts = flat.split([_room_for(value) for value in values])
        strides = [_strides(value.shape, place in self._bucket.channels_last) for place, value in enumerate(values)]
        return [
            part.as_strided(value.shape, stride, part.storage_offset())
            for part, value, stride in zip(parts, values, strides)
        ]


def _room_for(value: Tensor) -> int:
    """Elements of a buffer for a value: so many that the next one begins at a cache line."""
    return aligned(value.nbytes) // value.itemsize


def _strides(shape: Sequence[int], channels_last: bool) -> tuple[int, ...]:
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    return torch.empty(shape, device="meta", memory_format=memory_format).stride()


# What a program calls. Its first argument is a ``Bucket`` there, and a ``RunningBucket`` in the code that an executor
# makes of it.


def bucket_start(bucket: RunningBucket, values: list[Tensor]) -> Any:
    """Begins to reduce the values of a bucket."""
    return bucket.start(values)


def product_in(bucket: RunningBucket, place: int, a: Tensor, b: Tensor) -> Tensor:
    """A matrix product, made where a bucket wants it."""
    room = bucket.room(place)
    return torch.mm(a, b) if room is None else torch.mm(a, b, out=room)


def bucket_wait(bucket: RunningBucket, begun: Any) -> list[Tensor]:
    """The reduced values of a bucket."""
    return bucket.wait(begun)
