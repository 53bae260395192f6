"""Ranks that run on one host: they share memory, and they wait for each other (a barrier) without a byte through a
socket.

Each has a pipe in which the others say, a byte each, that they have come to the next milestone of the program that all
of them run. Who waits sleeps in the kernel, so a waiting rank takes no time from the others; a wait through gloo wakes
three threads per rank. It sleeps on the processes of the others too: the end of one is seen at once. One that lives and
does not come is waited for as long as the process group allows silence.
"""

from __future__ import annotations

import os
import select
import weakref
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from oneflow.engine.collective.groups import Ranks, group_of, patience
from oneflow.engine.collective.peers import GRACE_SECONDS, host_number, meeting, missing
from oneflow.engine.core.errors import PeerError
from oneflow.engine.core.shared_memory import Reference, Segment, path_of

_READ_BYTES = 4096
MOST_RANKS = 256  # that a byte can name


class Neighbour(NamedTuple):
    """Another rank of the host: its process, the way into its pipe, and a file that tells when the process ends."""

    pid: int
    outbox: int
    life: int


class HostGroup:
    """The ranks of a process group, all on this host. They call ``reach`` and ``memory`` in the same order, and one
    that waits bears a silence of ``seconds``."""

    def __init__(self, group: Any, inbox: int, neighbours: dict[int, Neighbour], seconds: float) -> None:
        self.size, self.place = dist.get_world_size(group), dist.get_rank(group)
        self._group = weakref.ref(group)  # an executor that outlives the group must not keep its threads alive
        self._seconds, self._milliseconds = seconds, seconds * 1000
        self._inbox = inbox
        self._neighbours = neighbours
        self._outboxes = [(neighbour.outbox, place) for place, neighbour in neighbours.items()]
        self._mark = bytes([self.place])
        self._reached = 0
        self._heard = dict.fromkeys(neighbours, 0)
        self.shared: set[int] = set()  # where tensors begin that all ranks hold together (``one_copy.py``)
        self._ended: set[int] = set()
        self._lives = {neighbour.life: place for place, neighbour in neighbours.items()}
        self._poll = select.poll()
        for fd in (inbox, *self._lives):
            self._poll.register(fd, select.POLLIN)

    @property
    def ranks(self) -> list[int]:
        """The members, in order."""
        return dist.get_process_group_ranks(self._group())

    def reach(self) -> int:
        """Tells the others that this rank has come to its next milestone; the number by which to wait for them
        there."""
        self._reached += 1
        for outbox, place in self._outboxes:
            try:
                os.write(outbox, self._mark)
            except BrokenPipeError:
                raise self._missing([place], [place]) from None
        return self._reached

    def wait(self, milestone: int) -> None:
        """Returns when every rank has come to a milestone. One that has ended before is an error, and so is silence of
        all that are missing."""
        while min(self._heard.values()) < milestone:
            try:
                marks = os.read(self._inbox, _READ_BYTES)
            except BlockingIOError:
                self._sleep(milestone)
                continue
            for place in marks:
                self._heard[place] += 1

    def _sleep(self, milestone: int) -> None:
        """Returns when there is something to read, or somebody has ended. What one said before its end counts, so it is
        read first."""
        if self._ended:
            self._require_alive(milestone)
        events = self._poll.poll(self._milliseconds)
        if not events:
            raise self._missing(self._absent(milestone), [])
        for fd, _ in events:
            if fd != self._inbox:
                self._poll.unregister(fd)
                self._ended.add(self._lives[fd])

    def _absent(self, milestone: int) -> list[int]:
        return [place for place, heard in self._heard.items() if heard < milestone]

    def _require_alive(self, milestone: int) -> None:
        absent = self._absent(milestone)
        ended = [place for place in absent if place in self._ended]
        if ended:
            raise self._missing(absent, ended)

    def _missing(self, absent: list[int], ended: list[int]) -> PeerError:
        ranks = self.ranks
        return missing(
            {ranks[place]: self._neighbours[place].pid for place in absent},
            [ranks[place] for place in ended],
            self._seconds,
        )

    def memory(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """New memory of so many elements that all ranks share. No rank keeps a file open for it."""
        if not count:
            return torch.empty(0, dtype=dtype)  # an empty file cannot be mapped
        segment = Segment(count * dtype.itemsize) if self.place == 0 else None
        told = torch.tensor(segment.reference if segment is not None else (0, 0, 0))
        try:
            with meeting(self.ranks):
                dist.broadcast(told, group=self._group(), group_src=0)
            mapped = self._mapped(Reference(*told.tolist()), count, dtype)
            self.wait(self.reach())
        finally:
            if segment is not None:
                segment.close()
        return mapped

    def _mapped(self, reference: Reference, count: int, dtype: torch.dtype) -> torch.Tensor:
        try:
            return torch.from_file(reference.path, shared=True, size=count, dtype=dtype)
        except RuntimeError:
            if self.place == 0 or not select.select([self._neighbours[0].life], [], [], GRACE_SECONDS)[0]:
                raise
            raise self._missing([0], [0]) from None


def host_of(ranks: Ranks, value: torch.Tensor, is_common: bool) -> HostGroup | None:
    """The ranks as ranks of one host, if they can exchange values like this one through its memory. All of them ask
    together."""
    return host_group(group_of(ranks)) if is_common and value.is_cpu else None


@lru_cache(maxsize=None)
def host_group(group: Any) -> HostGroup | None:
    """The ranks of a process group as ranks of one host; None when they are not, or may not look into each other. All
    call this together."""
    return new_host_group(group)


def new_host_group(group: Any) -> HostGroup | None:
    """As ``host_group``, and each time another one: whoever waits in it meets nobody else's milestones."""
    inbox, entrance = os.pipe()  # the way in stays open here too: a pipe without writers would read as ended
    neighbours = None
    try:
        os.set_blocking(inbox, False)
        with meeting(dist.get_process_group_ranks(group)):
            neighbours = _neighbours(group, entrance)
    finally:
        if neighbours is None:
            _close(inbox, entrance)
    return HostGroup(group, inbox, neighbours, patience(group)) if neighbours is not None else None


def _neighbours(group: Any, entrance: int) -> dict[int, Neighbour] | None:
    """The other ranks, if all of them are on this host and every one can reach every other."""
    size, place = dist.get_world_size(group), dist.get_rank(group)
    mine = torch.tensor([host_number(), os.getpid(), entrance])
    told = torch.empty(size * len(mine), dtype=torch.int64)
    dist.all_gather_single(told, mine, group)
    hosts, *_ = rows = told.view(size, -1).unbind(1)
    others = {other: (int(rows[1][other]), int(rows[2][other])) for other in range(size) if other != place}
    opened = _opened(others) if len(hosts.unique()) == 1 and size <= MOST_RANKS else None
    has_all = torch.tensor(opened is not None, dtype=torch.int32)
    is_agreed = False
    try:
        dist.all_reduce(has_all, dist.ReduceOp.MIN, group)
        is_agreed = bool(has_all)
    finally:
        if not is_agreed:
            _close(*_files(opened or {}))
    return opened if is_agreed else None


def _opened(pipes: dict[int, tuple[int, int]]) -> dict[int, Neighbour] | None:
    """The ways to other processes; None if the system does not let this one look into them."""
    opened: dict[int, Neighbour] = {}
    try:
        for place, (pid, fd) in pipes.items():
            life = os.pidfd_open(pid)
            try:
                opened[place] = Neighbour(pid, os.open(path_of(pid, fd), os.O_WRONLY | os.O_CLOEXEC), life)
            except OSError:
                os.close(life)
                raise
    except OSError:
        _close(*_files(opened))
        return None
    return opened


def _files(neighbours: dict[int, Neighbour]) -> list[int]:
    return [fd for neighbour in neighbours.values() for fd in (neighbour.outbox, neighbour.life)]


def _close(*files: int) -> None:
    for fd in files:
        os.close(fd)
