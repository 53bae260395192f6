"""Ranks that run on one host: they share memory, and they wait for each other without a byte through a socket.

Each has a pipe in which the others say, a byte each, that they have come to the next milestone of the program that all of them run. Who
waits sleeps in the kernel, so a waiting rank takes no time from the others. A rank that is gone is never waited for in vain: the driver
sees its end, and ends the run.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from functools import lru_cache
from typing import Any

import torch
import torch.distributed as dist

from oneflow.core.shared_memory import Reference, Segment, host_identity, path_of

_READ_BYTES = 4096
_MOST_RANKS = 256  # that a byte can name


class HostGroup:
    """The ranks of a process group, all on this host. They call ``reach`` and ``memory`` in the same order."""

    def __init__(self, group: Any, inbox: int, outboxes: dict[int, int]) -> None:
        self.size, self.place = dist.get_world_size(group), dist.get_rank(group)
        self._group = group
        self._inbox = inbox
        self._outboxes = list(outboxes.values())
        self._mark = bytes([self.place])
        self._reached = 0
        self._heard = dict.fromkeys(outboxes, 0)

    def reach(self) -> int:
        """Tells the others that this rank has come to its next milestone; the number by which to wait for them there."""
        self._reached += 1
        for outbox in self._outboxes:
            with contextlib.suppress(BrokenPipeError):  # its rank is gone, and the driver about to end the run
                os.write(outbox, self._mark)
        return self._reached

    def wait(self, milestone: int) -> None:
        """Returns when every rank has come to a milestone."""
        while min(self._heard.values()) < milestone:
            for place in os.read(self._inbox, _READ_BYTES):
                self._heard[place] += 1

    def memory(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """New memory of so many elements that all ranks share. No rank keeps a file open for it."""
        if not count:
            return torch.empty(0, dtype=dtype)  # an empty file cannot be mapped
        segment = Segment(count * dtype.itemsize) if self.place == 0 else None
        told = torch.tensor(segment.reference if segment is not None else (0, 0, 0))
        dist.broadcast(told, group=self._group, group_src=0)
        mapped = torch.from_file(Reference(*told.tolist()).path, shared=True, size=count, dtype=dtype)
        self.wait(self.reach())
        if segment is not None:
            segment.close()
        return mapped


@lru_cache(maxsize=None)
def host_group(group: Any) -> HostGroup | None:
    """The ranks of a process group as ranks of one host; None when they are not, or may not look into each other. All call this together."""
    size, place = dist.get_world_size(group), dist.get_rank(group)
    inbox, entrance = os.pipe()  # the way in stays open here too: a pipe without writers would read as ended
    mine = torch.tensor([_host_number(), os.getpid(), entrance])
    told = torch.empty(size * len(mine), dtype=torch.int64)
    dist.all_gather_single(told, mine, group)
    hosts, *_ = rows = told.view(size, -1).unbind(1)
    others = {other: (int(rows[1][other]), int(rows[2][other])) for other in range(size) if other != place}
    outboxes = _opened(others) if len(hosts.unique()) == 1 and size <= _MOST_RANKS else None
    has_all = torch.tensor(outboxes is not None, dtype=torch.int32)
    dist.all_reduce(has_all, dist.ReduceOp.MIN, group)
    if outboxes is not None and has_all:
        return HostGroup(group, inbox, outboxes)
    for fd in (inbox, entrance, *(outboxes or {}).values()):
        os.close(fd)
    return None


def _opened(pipes: dict[int, tuple[int, int]]) -> dict[int, int] | None:
    """The ways into the pipes of other processes; None if the system does not let this one look into them."""
    opened: dict[int, int] = {}
    try:
        for place, (pid, fd) in pipes.items():
            opened[place] = os.open(path_of(pid, fd), os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        for fd in opened.values():
            os.close(fd)
        return None
    return opened


def _host_number() -> int:
    return int.from_bytes(hashlib.sha256("/".join(host_identity()).encode()).digest()[:7], "big")
