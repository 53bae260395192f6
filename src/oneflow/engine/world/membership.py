"""Who this process is among the processes of its launcher, and their process group.

The group is made when something first needs it, from the launcher's variables (`runtime/launchers.py`), and left at
exit. Rank 0 serves the store by which the ranks find each other, unless the launcher does.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from oneflow.engine.core.errors import ArgumentError, PeerError
from oneflow.engine.core.number import whole
from oneflow.engine.runtime.launch.addresses import bind_collectives, listen, own_address
from oneflow.engine.runtime.launch.limits import connect_seconds, step_seconds
from oneflow.engine.runtime.launch.world import LOOPBACK
from oneflow.engine.world import role

if TYPE_CHECKING:
    from oneflow.engine.runtime.launch.launchers import Launched

_FAREWELL_SECONDS = 5.0  # for which rank 0 goes on serving the store at its end, while others are still there
_LOOK_SECONDS = 0.02


@dataclass(frozen=True)
class PeerWorld:
    """This process among those of its launcher: ``rank`` of ``size``, and ``local_rank`` of the ``local_size`` of its
    machine. In one that ``is_planned`` there are no others: its tensors have no data."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    is_planned: bool = False

    @property
    def node_size(self) -> int:
        """The number of machines."""
        return self.size // self.local_size

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(range(self.size))


class _Membership:
    """The world of this process once it was asked for, and what ``leave`` has to undo."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.world: PeerWorld | None = None
        self.store: dist.Store | None = None
        self.owner = 0  # the process that joined; a fork of it has not
        self.serves = False
        self.is_joined = False


_MEMBERSHIP = _Membership()


def current_world() -> PeerWorld:
    """This process's place among those of its launcher; a world of one without a launcher. Nothing is started. In a
    world of several it makes them peers."""
    if _MEMBERSHIP.world is None:
        found = _found()
        if found.size > 1:
            role.take(role.PEERS)
        _MEMBERSHIP.world = found
    return _MEMBERSHIP.world


def join() -> PeerWorld:
    """This process's world, whose ranks can meet from now on: the first call makes the process group, all ranks make it
    together. A world of one has none. A group that the program itself has made with torch is used as it is."""
    world = current_world()
    if world.size > 1 and not _MEMBERSHIP.is_joined and not world.is_planned:
        _join(world)
    return world


@contextlib.contextmanager
def planned_world(size: int) -> Iterator[PeerWorld]:
    """Within it this process, alone, stands for rank 0 of ``size`` ranks that are not there: global tensors may lie on
    any of them, have no data and take no memory, and so do local tensors that are made here; ``flow.plan`` tells what a
    graph of them would cost. Nothing is computed or sent."""
    before = current_world()
    if before.size > 1:
        raise ArgumentError(
            f"a world is planned by a process alone, this one is rank {before.rank} of {before.size}; run it without a "
            f"launcher"
        )
    _MEMBERSHIP.world = PeerWorld(0, whole("the size of a world", size, above=0), 0, size, is_planned=True)
    try:
        with torch.device("meta"):
            yield _MEMBERSHIP.world
    finally:
        _MEMBERSHIP.world = before


def group_for(ranks: Iterable[int]) -> Any:
    """The process group of some ranks, this one among them; None for a rank alone. Only these ranks ask for it; when
    they do so for the first time they wait for each other."""
    members = tuple(sorted(ranks))
    world = join()
    if world.rank not in members or members[-1] >= world.size or members[0] < 0 or len(set(members)) != len(members):
        raise ArgumentError(
            f"a group of ranks {list(members)} for rank {world.rank} of {world.size}; name ranks of the world once "
            f"each, its own too"
        )
    if len(members) == 1:
        return None
    from oneflow.engine.collective import group_of

    return group_of(members)


def leave() -> None:
    """Leaves the process group, if this process has made it. Called at exit; afterwards the process may join anew."""
    atexit.unregister(leave)
    if _MEMBERSHIP.owner == os.getpid():
        _leave()
    _MEMBERSHIP.reset()
    role.forget()


def _found() -> PeerWorld:
    found = _launched()
    if dist.is_available() and dist.is_initialized():  # by the program itself
        rank, size = dist.get_rank(), dist.get_world_size()
        same = found is not None and (found.rank, found.size) == (rank, size)
        return (
            PeerWorld(rank, size, found.local_rank, found.local_size)
            if found is not None and same
            else PeerWorld(rank, size, rank, size)
        )
    return PeerWorld() if found is None else PeerWorld(found.rank, found.size, found.local_rank, found.local_size)


def _launched() -> Launched | None:
    given = [name for name in ("RANK", "WORLD_SIZE") if name in os.environ]
    if not given and "SLURM_PROCID" not in os.environ:
        return None
    if len(given) == 1:
        other = "WORLD_SIZE" if given[0] == "RANK" else "RANK"
        warnings.warn(
            f"{given[0]} is set and {other} is not: this process runs alone; a launcher sets both", stacklevel=4
        )
    from oneflow.engine.runtime.launch.launchers import launched

    return launched()


def _join(world: PeerWorld) -> None:
    from oneflow.engine.collective import make_groups, share_memory

    if not dist.is_initialized():
        found = _launched()
        assert found is not None
        _make_group(world, found)
        _MEMBERSHIP.owner = os.getpid()
        atexit.register(leave)
    make_groups([])  # the ranks tell each other where they run
    share_memory()
    _MEMBERSHIP.is_joined = True


def _make_group(world: PeerWorld, found: Launched) -> None:
    seconds = connect_seconds()
    bind_collectives(own_address(_meeting_address(found)))
    store = _store(found, seconds)
    _MEMBERSHIP.store, _MEMBERSHIP.serves = store, found.rank == 0 and found.store_key is None
    _await_all(world, store, seconds)
    backend = "gloo"
    if torch.cuda.is_available():  # never run where the tests run: no GPU there
        backend = "cpu:gloo,cuda:nccl"
        torch.cuda.set_device(world.local_rank % torch.cuda.device_count())
    limit = timedelta(seconds=step_seconds())
    store.set_timeout(limit)
    dist.init_process_group(backend, store=store, rank=world.rank, world_size=world.size, timeout=limit)


def _store(found: Launched, seconds: float) -> dist.Store:
    """The store of this run: served by rank 0, or by the launcher, in which an earlier attempt may have left its
    keys."""
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    address, limit = _meeting_address(found), timedelta(seconds=seconds)
    if found.rank == 0 and found.store_key is None:
        listener = _listener(address, found.port)
        host, port = listener.getsockname()[:2]
        tcp = dist.TCPStore(
            host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach(), timeout=limit
        )
    else:
        _await_store(found, address, seconds)
        tcp = dist.TCPStore(address, found.port, is_master=False, wait_for_workers=False, timeout=limit)
    return dist.PrefixStore(f"oneflow/peers/{attempt}", tcp)


def _meeting_address(found: Launched) -> str:
    """Where the store is: a run on one machine is not seen from outside."""
    if found.store_key is not None:
        return found.address
    return LOOPBACK if found.is_local else found.listening_place[0]


def _listener(address: str, port: int) -> socket.socket:
    try:
        return listen(address, port)
    except OSError as error:
        raise ArgumentError(
            f"rank 0 cannot listen at {address} port {port} ({error.strerror}); MASTER_ADDR must be an address of rank "
            f"0's machine and MASTER_PORT "
            "a port that nothing else uses there"
        ) from None


def _await_store(found: Launched, address: str, seconds: float) -> None:
    """Returns when somebody listens at the store's place."""
    end = time.monotonic() + seconds
    while True:
        try:
            with socket.create_connection((address, found.port), timeout=max(_LOOK_SECONDS, end - time.monotonic())):
                return
        except OSError as error:
            if time.monotonic() > end:
                raise PeerError(
                    f"rank {found.rank} on {socket.gethostname()} waited in vain for rank 0 at {address} port "
                    f"{found.port}: "
                    f"{error.strerror or error} for {seconds:g} s; ONEFLOW_CONNECT_TIMEOUT sets another limit"
                ) from None
            time.sleep(_LOOK_SECONDS)


def _await_all(world: PeerWorld, store: dist.Store, seconds: float) -> None:
    """Returns when every rank is here."""
    keys = [f"here/{rank}" for rank in world.ranks]
    store.set(keys[world.rank], socket.gethostname())
    try:
        store.wait(keys, timedelta(seconds=seconds))
    except dist.DistStoreError:
        absent = [str(rank) for rank, key in enumerate(keys) if not store.check([key])]
        raise PeerError(
            f"rank {world.rank} on {socket.gethostname()} waited in vain for rank {', '.join(absent)} of {world.size}: "
            f"not here after "
            f"{seconds:g} s; every rank must come to the first use of a global tensor, graph or flow.comm. "
            f"ONEFLOW_CONNECT_TIMEOUT sets another limit"
        ) from None


def _leave() -> None:
    from oneflow.engine.collective.peers import processes_here

    store, world, near = _MEMBERSHIP.store, _MEMBERSHIP.world, {}
    if dist.is_initialized():
        near = processes_here()
        if not _failed():  # a failed program does not wait for collectives that the others may never join
            _forget_groups()
        dist.destroy_process_group()
    if store is None or world is None:
        return
    with contextlib.suppress(RuntimeError):  # the store may be gone with the process that served it
        store.set(f"left/{world.rank}", "")
        if _MEMBERSHIP.serves and not _failed():
            _serve_on(store, [rank for rank in world.ranks if rank != world.rank], near)


def _forget_groups() -> None:
    """Drops the references that would keep gloo's threads running after ``destroy_process_group``.

    A gloo thread that releases the last reference to a tensor takes the GIL. While the interpreter shuts down, Python
    3.11 answers with pthread_exit, which C++ turns into "terminate called without an active exception".
    """
    from oneflow.engine.collective import forget_groups
    from oneflow.engine.world.order import forget_calls

    forget_groups()
    forget_calls()


def _serve_on(store: dist.Store, others: list[int], near: dict[int, int]) -> None:
    """Returns when the other ranks have left or ended: they may still need the store, to make a group without this
    rank."""
    from oneflow.engine.collective.peers import is_running

    end = time.monotonic() + _FAREWELL_SECONDS
    while others and time.monotonic() < end:
        others = [
            rank
            for rank in others
            if not store.check([f"left/{rank}"]) and (rank not in near or is_running(near[rank]))
        ]
        if others:
            time.sleep(_LOOK_SECONDS)


def _failed() -> bool:
    """Whether the program ends by an error; then nobody should wait for its end."""
    return getattr(sys, "last_value", None) is not None
