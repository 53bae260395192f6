"""Collectives of the ranks of one host through memory that they share, for ranks that meet in calls of their own, one
after the other.

    each rank   writes what it has into its row, and above it what it calls
    all         wait until every rank has
    each rank   sees that all call the same, and reads from the rows what it needs

There are two sets of rows, in turns: who writes one again knows that all have read it, because they have come to the
next call. A gloo call wakes three threads per rank and takes ten times as long. Values longer than a row go in pieces.

Only worlds that were told to (``share_memory``) have rooms: workers that are driven meet in programs, which have
buckets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from oneflow.engine.collective import groups, host_group, peers
from oneflow.engine.collective.groups import Ranks, group_of
from oneflow.engine.collective.host_group import HostGroup, new_host_group
from oneflow.engine.core.errors import OrderError

_TEXT_BYTES = 256
_MOST_VIEWS = 512
_LEAST_ROW = 1 << 16
_LONGEST_ROW = 1 << 23
_SLICED_FROM = 1 << 16  # bytes from which more than two ranks add up a slice each instead of everything
_TWO_ARGUMENTS: dict[str, Callable[..., Tensor]] = {
    "sum": torch.add,
    "max": torch.maximum,
    "min": torch.minimum,
    "product": torch.mul,
}


class Room:
    """The rows of the ranks of one host. All of them make it together and call each method together."""

    def __init__(self, host: HostGroup) -> None:
        self.size, self.place = host.size, host.place
        self._host = host
        self._number = 0
        self._digests = host.memory(2 * host.size, torch.int64).view(2, host.size).numpy()
        self._texts = host.memory(2 * host.size * _TEXT_BYTES, torch.uint8).view(2, host.size, _TEXT_BYTES).numpy()
        self._rows: Tensor | None = None
        self._longest = 0
        self._views: dict[tuple[int, torch.dtype], list[list[Tensor]]] = {}

    @staticmethod
    def longest(dtype: torch.dtype) -> int:
        """The most elements that fit a row."""
        return _LONGEST_ROW // dtype.itemsize

    def meet(self, what: str) -> None:
        """Returns when all ranks are here; an error if they call something else."""
        self.exchange(torch.empty(0, dtype=torch.uint8), what)

    def reduce(self, value: Tensor, how: str, what: str) -> Tensor:
        """The elementwise reduction of every rank's value, in the order of the ranks."""
        flat = value.reshape(-1)
        if flat.nbytes <= _SLICED_FROM:
            return reduced(self.exchange(flat, what), how, torch.empty_like(flat)).view(value.shape)
        result = torch.empty_like(flat)
        for piece, target in zip(_pieces(flat), _pieces(result)):
            rows = self.exchange(piece, what)
            if self.size > 2 and piece.nbytes > _SLICED_FROM:
                rows = self._reduce_by_slices(rows, how)
                torch.cat([row.tensor_split(self.size)[place] for place, row in enumerate(rows)], out=target)
            else:
                reduced(rows, how, target)
        return result.view(value.shape)

    def _reduce_by_slices(self, rows: list[Tensor], how: str) -> list[Tensor]:
        """Each rank leaves the reduction of its slice in its own row, where nobody else reads that slice before."""
        slices = [row.tensor_split(self.size)[self.place] for row in rows]
        slices[self.place].copy_(reduced(slices, how, torch.empty_like(slices[0])))
        self._host.wait(self._host.reach())
        return rows

    def gather(self, value: Tensor, what: str) -> Tensor:
        """The values of all ranks, of equal shapes, stacked along a new first dim."""
        flat = value.reshape(-1)
        result = flat.new_empty((self.size, flat.numel()))
        begin = 0
        for piece in _pieces(flat):
            for target, row in zip(result[:, begin : begin + piece.numel()], self.exchange(piece, what)):
                target.copy_(row)
            begin += piece.numel()
        return result.view((self.size, *value.shape))

    def exchange(self, mine: Tensor, what: str, count: int | None = None) -> list[Tensor]:
        """What each rank has put here: flat tensors of one dtype, with ``count`` elements, or as many as ``mine``.
        Where a rank has put less the rest means nothing. They may be read until the next call but one."""
        turn, count = self._number % 2, mine.numel() if count is None else count
        size = count * mine.itemsize
        self._number += 1
        if size <= self._longest:
            self._put(turn, mine, count)
        self._tell(turn, size, what)
        if size > self._longest:
            self._make_rows(size)
            self._put(turn, mine, count)
            self._host.wait(self._host.reach())
        return self._parts(count, mine.dtype)[turn]

    def _tell(self, turn: int, size: int, what: str) -> None:
        """Tells the others what this rank calls, waits for all of them and hears the same."""
        digest, text = _head(size, what)
        self._digests[turn, self.place] = digest
        self._texts[turn, self.place] = text
        self._host.wait(self._host.reach())
        if self._digests[turn].tolist().count(digest) != self.size:
            raise OrderError(self._differing(turn))

    def _put(self, turn: int, mine: Tensor, count: int) -> None:
        if count:
            row = self._parts(count, mine.dtype)[turn][self.place]
            (row if count == mine.numel() else row[: mine.numel()]).copy_(mine)

    def _parts(self, count: int, dtype: torch.dtype) -> list[list[Tensor]]:
        """The beginnings of all rows of both turns. They are kept: making them takes longer than a short value's
        way."""
        found = self._views.get((count, dtype))
        if found is None:
            if len(self._views) >= _MOST_VIEWS:
                self._views.clear()
            if self._rows is None:  # no rank has put a byte yet
                found = [[torch.empty(0, dtype=dtype)] * self.size] * 2
            else:
                taken = self._rows[:, :, : count * dtype.itemsize]
                found = [[row.view(dtype) for row in turn.unbind()] for turn in taken.unbind()]
            self._views[count, dtype] = found
        return found

    def _make_rows(self, size: int) -> None:
        self._views.clear()
        self._longest = max(_LEAST_ROW, 1 << (size - 1).bit_length())
        self._rows = self._host.memory(2 * self.size * self._longest, torch.uint8).view(2, self.size, self._longest)

    def _differing(self, turn: int) -> str:
        calls = [bytes(text).rstrip(b"\0").decode(errors="replace") for text in self._texts[turn]]
        told = "; ".join(f"rank {rank} calls {call}" for rank, call in zip(self._host.ranks, calls))
        return f"the ranks call different operations: {told}. Every rank of a group must make the same calls in the same order"


@lru_cache(maxsize=1024)
def _head(size: int, what: str) -> tuple[int, np.ndarray]:
    """A call as a number and as text."""
    text = f"{what}, {size} bytes".encode()
    digest = int.from_bytes(hashlib.sha256(text).digest()[:7], "big")
    return digest, np.frombuffer(text[:_TEXT_BYTES].ljust(_TEXT_BYTES, b"\0"), dtype=np.uint8)


def _pieces(flat: Tensor) -> Iterator[Tensor]:
    return iter(flat.split(max(1, _LONGEST_ROW // flat.itemsize)) if flat.numel() else [flat])


def reduced(rows: Sequence[Tensor], how: str, target: Tensor) -> Tensor:
    """The elementwise reduction of the rows, written into the target."""
    combine = _TWO_ARGUMENTS[how]
    first, second, *others = rows
    combine(first, second, out=target)
    for other in others:
        combine(target, other, out=target)
    return target


class _Sharing:
    """What a world was told about its memory."""

    def __init__(self) -> None:
        self.is_on = False


@lru_cache(maxsize=1)
def _sharing(world: Any) -> _Sharing:
    return _Sharing()


def share_memory() -> None:
    """From now on ranks of one host meet in rooms. All ranks of the world call this."""
    _sharing(dist.group.WORLD).is_on = True


def room_of(ranks: Ranks, *values: Tensor) -> Room | None:
    """The room of these ranks, if they meet in one and the values may go through it. All of them ask together, in every
    call."""
    world = dist.group.WORLD
    return _room(world, ranks) if _sharing(world).is_on and all(value.is_cpu for value in values) else None


@lru_cache(maxsize=None)
def _room(world: Any, ranks: Ranks) -> Room | None:
    return _room_of_group(group_of(ranks))


@lru_cache(maxsize=None)
def _room_of_group(group: Any) -> Room | None:
    """One for all orders of the ranks."""
    host = new_host_group(group)
    return None if host is None else Room(host)


def forget_groups() -> None:
    """Drops every cached reference to a process group, so that ``destroy_process_group`` ends its threads."""
    for cached in (groups._group, host_group.host_group, peers._known, _sharing, _room, _room_of_group):
        cached.cache_clear()


def fits(count: int, dtype: torch.dtype) -> bool:
    """Whether so many elements fit a row."""
    return count * dtype.itemsize <= _LONGEST_ROW
