"""The ways by which the ranks of a world exchange tensors of one shape: memory that they share, or a process group.
Alone there is none.

Values are contiguous; results are new tensors, which may be parts of the values themselves where nothing had to move.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from oneflow.engine.collective.rooms import Room, reduced, room_of
from oneflow.engine.world import PeerWorld


class Wire(Protocol):
    """One meeting per call. ``parts`` are stacked along the first dim, one per rank."""

    def meet(self) -> None:
        """Returns when all are here."""

    def add(self, value: Tensor, what: str) -> Tensor:
        """The sum of all values."""

    def add_at(self, value: Tensor, target: int, what: str) -> Tensor | None:
        """The sum of all values, at the target."""

    def gather(self, value: Tensor, what: str) -> Tensor:
        """All values, stacked."""

    def gather_at(self, value: Tensor, target: int, what: str) -> Tensor | None:
        """All values, stacked, at the target."""

    def spread(self, value: Tensor, source: int, what: str) -> Tensor:
        """The source's value."""

    def deal(self, parts: Tensor | None, like: Tensor, source: int, what: str) -> Tensor:
        """This rank's part of the source's."""

    def swap(self, parts: Tensor, what: str) -> Tensor:
        """From every rank its part for this one, stacked."""

    def add_parts(self, parts: Tensor, what: str) -> Tensor:
        """The sum of every rank's part for this one."""


def wire_for(world: PeerWorld, *values: Tensor) -> Wire | None:
    """The way that the world's ranks take for such values; None in a world of one."""
    if world.size == 1:
        return None
    room = room_of(world.ranks, *values)
    return MemoryWire(room) if room is not None else GroupWire(world)


class MemoryWire:
    """Through the memory of one host."""

    def __init__(self, room: Room) -> None:
        self._room = room

    def meet(self) -> None:
        self._room.meet("barrier")

    def add(self, value: Tensor, what: str) -> Tensor:
        return self._room.reduce(value, "sum", what)

    def add_at(self, value: Tensor, target: int, what: str) -> Tensor | None:
        result = torch.empty_like(value).view(-1)
        for where, rows in self._columns(value.view(1, -1), 1, value.numel(), value, what):
            if self._room.place == target:
                reduced([row[0] for row in rows], "sum", result[where])
        return result.view(value.shape) if self._room.place == target else None

    def gather(self, value: Tensor, what: str) -> Tensor:
        return self._room.gather(value, what)

    def gather_at(self, value: Tensor, target: int, what: str) -> Tensor | None:
        is_target = self._room.place == target
        result = value.new_empty((self._room.size if is_target else 0, value.numel()))
        for where, rows in self._columns(value.view(1, -1), 1, value.numel(), value, what):
            for place, row in enumerate(rows if is_target else ()):
                result[place, where].copy_(row[0])
        return result.view((self._room.size, *value.shape)) if is_target else None

    def spread(self, value: Tensor, source: int, what: str) -> Tensor:
        mine, result = value.view(1, -1) if self._room.place == source else None, torch.empty_like(value)
        for where, rows in self._columns(mine, 1, value.numel(), value, what):
            result.view(-1)[where].copy_(rows[source][0])
        return result

    def deal(self, parts: Tensor | None, like: Tensor, source: int, what: str) -> Tensor:
        size, result = self._room.size, torch.empty_like(like)
        mine = parts.view(size, -1) if parts is not None and self._room.place == source else None
        for where, rows in self._columns(mine, size, like.numel(), like, what):
            result.view(-1)[where].copy_(rows[source][self._room.place])
        return result

    def swap(self, parts: Tensor, what: str) -> Tensor:
        size, length = self._room.size, parts[0].numel()
        result = torch.empty_like(parts).view(size, length)
        for where, rows in self._columns(parts.view(size, length), size, length, parts, what):
            for place, row in enumerate(rows):
                result[place, where].copy_(row[self._room.place])
        return result.view(parts.shape)

    def add_parts(self, parts: Tensor, what: str) -> Tensor:
        size, result = self._room.size, torch.empty_like(parts[0])
        for where, rows in self._columns(parts.view(size, -1), size, result.numel(), parts, what):
            reduced([row[self._room.place] for row in rows], "sum", result.view(-1)[where])
        return result

    def _columns(
        self, mine: Tensor | None, rows: int, length: int, like: Tensor, what: str
    ) -> Iterator[tuple[slice, Sequence[Tensor]]]:
        """Every rank's matrix of ``rows`` times ``length``, some columns at a time. A rank that has none to give still
        comes."""
        step = self._room.longest(like.dtype) // rows
        for begin in range(0, max(1, length), step):
            where = slice(begin, min(begin + step, length))
            count = rows * (where.stop - begin)
            given = mine[:, where].reshape(-1) if mine is not None else like.new_empty(0)
            yield (
                where,
                [row.view(rows, -1) if count else row.view(rows, 0) for row in self._room.exchange(given, what, count)],
            )


class GroupWire:
    """Through the process group of the world."""

    def __init__(self, world: PeerWorld) -> None:
        self._world = world

    def meet(self) -> None:
        dist.all_reduce(torch.zeros(1))  # torch's barrier would choose a device

    def add(self, value: Tensor, what: str) -> Tensor:
        result = value.clone()
        dist.all_reduce(result)
        return result

    def add_at(self, value: Tensor, target: int, what: str) -> Tensor | None:
        result = value.clone()
        dist.reduce(result, target)
        return result if self._world.rank == target else None

    def gather(self, value: Tensor, what: str) -> Tensor:
        result = value.new_empty((self._world.size, *value.shape))
        dist.all_gather_single(_bytes(result), _bytes(value))
        return result

    def gather_at(self, value: Tensor, target: int, what: str) -> Tensor | None:
        is_target = self._world.rank == target
        result = value.new_empty((self._world.size, *value.shape)) if is_target else None
        dist.gather(_bytes(value), [_bytes(part) for part in result.unbind()] if result is not None else None, target)
        return result

    def spread(self, value: Tensor, source: int, what: str) -> Tensor:
        result = value.clone()
        dist.broadcast(_bytes(result), source)
        return result

    def deal(self, parts: Tensor | None, like: Tensor, source: int, what: str) -> Tensor:
        result = torch.empty_like(like)
        given = [_bytes(part) for part in parts.unbind()] if parts is not None and self._world.rank == source else None
        dist.scatter(_bytes(result), given, source)
        return result

    def swap(self, parts: Tensor, what: str) -> Tensor:
        result = torch.empty_like(parts)
        dist.all_to_all_single(_bytes(result), _bytes(parts))
        return result

    def add_parts(self, parts: Tensor, what: str) -> Tensor:
        result = torch.empty_like(parts[0])
        dist.reduce_scatter_single(result.view(-1), parts.view(-1))
        return result


def _bytes(value: Tensor) -> Tensor:
    """The memory of a contiguous tensor: what is only moved may have any dtype."""
    return value.view(-1).view(torch.uint8)
