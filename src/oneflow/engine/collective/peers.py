"""Failure detection without a driver: who the other ranks are, and the error when one of them has ended, is stopped or
does not come.

What is known of a rank is the host and the process it has told the others of (``introduce``). Of ranks on this host the
system tells whether they have ended or are stopped; of others only that the connection was lost, or that the time is
over.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import socket
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch.distributed as dist

from oneflow.engine.core.errors import PeerError
from oneflow.engine.core.shared_memory import host_identity

_LOST = "connection", "broken pipe", "timed out", "timeout", "time out"  # what libraries say, in small letters
_NAMES_SHOWN = 8  # of those that were waited for; who is known to be gone is named in any case
GRACE_SECONDS = 1.0  # in which a process whose files are closed already comes to its end


class Member(NamedTuple):
    """Where a rank runs: the name of its host, a number that only processes with the same ones in sight share, and its
    process there."""

    host: str
    system: int
    pid: int


def host_number() -> int:
    """Equal for two processes that may share memory."""
    return int.from_bytes(hashlib.sha256("/".join(host_identity()).encode()).digest()[:7], "big")


def introduce() -> None:
    """Tells all ranks where this one runs, and hears where they run. All ranks call this; after the first time it does
    nothing."""
    world: Any = dist.group.WORLD
    size = dist.get_world_size()
    known = _known(world)
    if known:
        return
    store, keys = world.get_group_store(), [f"oneflow/rank/{rank}" for rank in range(size)]
    with meeting(range(size)):
        store.set(keys[dist.get_rank()], f"{host_number()} {os.getpid()} {socket.gethostname()}")
        told = [value.decode().split(maxsplit=2) for value in store.multi_get(keys)]
    known.update({rank: Member(host, int(system), int(pid)) for rank, (system, pid, host) in enumerate(told)})


@lru_cache(maxsize=1)
def _known(world: Any) -> dict[int, Member]:
    """What the ranks of this world have told of themselves so far."""
    return {}


def processes_here() -> dict[int, int]:
    """The processes of the other ranks that run where this one can see them."""
    return {
        rank: pid
        for rank in range(dist.get_world_size())
        if rank != dist.get_rank() and (pid := _pid_here(rank)) is not None
    }


def is_running(pid: int) -> bool:
    """Whether a process of this host is there, and neither ended nor stopped."""
    return _state(pid) not in ("", "Z", "X", "T", "t")


class meeting(contextlib.AbstractContextManager[None]):
    """Around what a library does together with other ranks: when it fails because one of them does, that is the
    error."""

    __slots__ = ("_ranks",)

    def __init__(self, ranks: Iterable[int]) -> None:
        self._ranks = ranks

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, RuntimeError) and not isinstance(error, PeerError) and _is_lost(error):
            raise lost(self._ranks, _first_line(error)) from error


def _is_lost(error: RuntimeError) -> bool:
    if isinstance(error, (dist.DistNetworkError, dist.DistStoreError)):
        return True
    text = str(error).lower()
    return any(mark in text for mark in _LOST)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].strip()


def lost(ranks: Iterable[int], said: str) -> PeerError:
    """The error of a rank that waited for others of ``ranks`` when a connection broke or the time was over, as the
    library has ``said``."""
    others = {rank: _name(rank) for rank in ranks if rank != dist.get_rank()}
    near = {rank: pid for rank in others if (pid := _pid_here(rank)) is not None}
    facts = [f"{others[rank]} has ended" for rank in _ended(near, GRACE_SECONDS)] + [
        f"{others[rank]} is stopped" for rank in _stopped(near)
    ]
    return _in_vain(others.values(), f"{', '.join(facts)} ({said})" if facts else said)


def missing(pids: dict[int, int], ended: Sequence[int], seconds: float) -> PeerError:
    """The error of a rank that waited for ranks of this host, given with their processes: some have ended, or all let
    the time pass."""
    names = {rank: f"rank {rank} on {socket.gethostname()}" for rank in pids}
    facts = [f"{names[rank]} has ended" for rank in ended]
    if not facts:
        facts = [
            f"{seconds:g} s are over, the time-out of the process group",
            *(f"{names[rank]} is stopped" for rank in _stopped(pids)),
        ]
    return _in_vain(names.values(), ", ".join(facts))


def _in_vain(others: Iterable[str], why: str) -> PeerError:
    names = list(others)
    listed = ", ".join(names[:_NAMES_SHOWN]) + (
        f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    )
    return PeerError(
        f"rank {dist.get_rank()} on {socket.gethostname()} waited in vain for {listed}: {why}; what they have said "
        f"last may tell more"
    )


def _name(rank: int) -> str:
    """A rank and its host, if it has told."""
    member = _known(dist.group.WORLD).get(rank)
    return f"rank {rank} on {member.host}" if member is not None else f"rank {rank}"


def _pid_here(rank: int) -> int | None:
    """The process of a rank, if this one can see it."""
    member = _known(dist.group.WORLD).get(rank)
    return member.pid if member is not None and member.system == host_number() else None


def _ended(pids: dict[int, int], seconds: float) -> list[int]:
    """The ranks whose processes have ended, or the first that end within some seconds."""
    ended: list[int] = []
    poll, watched = select.poll(), {}
    with contextlib.ExitStack() as opened:
        for rank, pid in pids.items():
            try:
                fd = os.pidfd_open(pid)
            except ProcessLookupError:
                ended.append(rank)
                continue
            opened.callback(os.close, fd)
            poll.register(fd, select.POLLIN)
            watched[fd] = rank
        return sorted([*ended, *(watched[fd] for fd, _ in poll.poll(0 if ended else seconds * 1000))])


def _stopped(pids: dict[int, int]) -> list[int]:
    return [rank for rank, pid in pids.items() if _state(pid) in ("T", "t")]


def _state(pid: int) -> str:
    """The letter by which the system tells what a process does; none if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return ""
