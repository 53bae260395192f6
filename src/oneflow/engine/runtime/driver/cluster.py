"""The driver's side of a run: starts the workers, calls their handlers, and ends with one error when any of them is in
trouble."""

from __future__ import annotations

import functools
import os
import secrets
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from oneflow.engine.core.errors import ArgumentError, WorkerError
from oneflow.engine.core.shared_memory import Reference, SegmentPool, can_open_files_of
from oneflow.engine.runtime.channel.channel import Channel, Kind, make_frame
from oneflow.engine.runtime.driver.crew import Crew, Peer
from oneflow.engine.runtime.driver.interrupts import InterruptsHeld
from oneflow.engine.runtime.driver.worker import Seat
from oneflow.engine.runtime.launch.launch import LAUNCHER
from oneflow.engine.runtime.launch.launchers import Launched
from oneflow.engine.runtime.launch.limits import (
    connect_seconds,
    given_port,
    given_secret,
    share_of_threads,
    step_seconds,
)
from oneflow.engine.runtime.launch.rendezvous import Address, Hello, Reception, identity
from oneflow.engine.runtime.launch.world import LOOPBACK, World

_STARTING = "starting the workers"
_PATIENCE = 3.0  # seconds before the driver says whom it waits for


class Cluster:
    """Workers, one per device of ``world``, each with an instance of ``handler`` (``"package.module:Class"``, made as
    ``Class(context)``).

    Those of this machine it starts, those of the others come; with ``launched``, all but rank 0 come, started by a
    launcher. The workers have joined torch's default process group. A call that fails, in whichever way, ends every
    process; later calls say so. It also ends when it is forgotten and with the program. Calls are made one at a time,
    from any thread.
    """

    def __init__(
        self,
        world: World,
        handler: str,
        *,
        threads: int | None = None,
        step_timeout: float | None = None,
        launched: Launched | None = None,
    ) -> None:
        self._step_seconds = step_seconds(step_timeout)
        self._failure: str | None = None
        self._owner = os.getpid()
        self.interrupts = InterruptsHeld()
        self._lock = threading.Lock()
        self._world = world
        crew = self._crew = Crew(SegmentPool(), LAUNCHER.new_group())
        self._close = weakref.finalize(self, _close, crew, os.getpid())
        _abandon_in_children(crew)
        try:
            _gather(
                crew, world, handler, share_of_threads(threads, world.devices_per_machine), _meeting(world, launched)
            )
            self._join()
        except BaseException as error:
            self._fail(error)
            raise

    @property
    def size(self) -> int:
        return self._world.size

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers, each on its own machine."""
        return [self._crew.workers[rank].hello.pid for rank in range(self.size)]

    @property
    def hosts(self) -> list[str]:
        return [self._crew.workers[rank].hello.host for rank in range(self.size)]

    def call(self, method: str, arguments: Sequence[tuple[Any, ...]], *, what: str) -> list[Any]:
        """Calls the method of every rank's handler with its own arguments; the results in rank order.

        ``what`` names job and step in errors. Arrays in the results may be kept and written to.
        """
        if len(arguments) != self.size:
            raise ArgumentError(f"{what}: arguments for {len(arguments)} ranks; there are {self.size}")
        with self._lock, self.interrupts:
            return self._exchange([(rank, method, arguments[rank]) for rank in range(self.size)], what)

    def broadcast(self, method: str, *arguments: Any, what: str) -> list[Any]:
        """Calls the method of every rank's handler with the same arguments, which are taken apart once."""
        with self._lock, self.interrupts:
            self._check_open(what)
            try:
                return self._crew.exchange(self._broadcast_frames(method, arguments), what, self._step_seconds)
            except BaseException as error:
                self._fail(error)
                raise

    def lane_memory(self, rank: int, size: int) -> tuple[np.ndarray, Reference | None]:
        """Memory of this process, at least ``size`` bytes; and where a worker that can share it finds it."""
        pool = self._crew.workers[rank].channel.pool
        if pool is None:
            return np.empty(size, np.uint8), None
        segment = pool.keep(size)
        return np.frombuffer(segment.memory, np.uint8), segment.reference

    def require_owner(self) -> None:
        """Raises in a child that was forked from the process that started the workers: it shares memory with them, and
        no connection."""
        if os.getpid() != self._owner:
            raise WorkerError(
                f"process {os.getpid()} was forked from {self._owner}, whose workers it cannot call; call "
                f"flow.clear_default_session() and "
                "define the jobs again in it to have workers of its own"
            )

    def close(self) -> None:
        """Ends the workers, and returns when those of this machine are gone."""
        self._close()

    def _exchange(self, calls: list[tuple[int, str, tuple[Any, ...]]], what: str) -> list[Any]:
        self._check_open(what)
        workers = self._crew.workers
        try:
            frames = [
                (rank, make_frame(Kind.CALL, (method, arguments), workers[rank].channel.pool))
                for rank, method, arguments in calls
            ]
            return self._crew.exchange(frames, what, self._step_seconds)
        except BaseException as error:  # after an interrupt that could not be held too: an answer may be half read
            self._fail(error)
            raise

    def _broadcast_frames(self, method: str, arguments: tuple[Any, ...]) -> list[tuple[int, Any]]:
        near = [rank for rank, peer in self._crew.workers.items() if peer.channel.pool is not None]
        tree = (method, arguments)
        shared = make_frame(Kind.CALL, tree, self._crew.pool, len(near)) if near else None
        whole = make_frame(Kind.CALL, tree) if len(near) < self.size else None
        return [(rank, shared if rank in near else whole) for rank in range(self.size)]

    def _join(self) -> None:
        ((host, port),) = self._exchange([(0, ".open_store", ())], _STARTING)
        self._exchange([(rank, ".join", (host, port, self._step_seconds)) for rank in range(self.size)], _STARTING)

    def _check_open(self, what: str) -> None:
        self.require_owner()
        if not self._close.alive:
            cause = f"their first failure was: {self._failure}" if self._failure else "they were closed"
            raise WorkerError(
                f"{what}: the workers have ended, call flow.clear_default_session() and define the jobs again to begin "
                f"anew; {cause}"
            )

    def _fail(self, error: BaseException) -> None:
        self._failure = ": ".join(filter(None, [type(error).__name__, str(error)]))
        if self._close.detach() is not None:
            _close(self._crew, os.getpid(), self._failure)


def _close(crew: Crew, owner: int, reason: str | None = None) -> None:
    if os.getpid() == owner:  # a forked child that ends must not end its parent's workers
        crew.close(reason)


def _abandon_in_children(crew: Crew) -> None:
    """A forked child would keep connections open after the driver's end, and the other processes would not hear of
    it."""
    reference = weakref.ref(crew)

    def abandon() -> None:
        crew = reference()
        if crew is not None:
            crew.abandon()

    os.register_at_fork(after_in_child=abandon)


class _Meeting(NamedTuple):
    """Where the processes of a run meet, and who comes: the ranks that the driver starts itself, and agents of other
    machines."""

    host: str
    port: int
    secret: bytes
    own_ranks: Sequence[int]
    machines: Sequence[int]
    announced: Callable[[int, bytes], AbstractContextManager[None]] = lambda port, secret: nullcontext()


def _meeting(world: World, launched: Launched | None) -> _Meeting:
    if launched is not None:
        return _Meeting(*launched.listening_place, launched.new_secret(), [0], [], launched.announced)
    if len(world.machines) == 1:
        return _Meeting(LOOPBACK, 0, secrets.token_bytes(32), range(world.size), [])
    return _Meeting(
        world.machines[0], given_port(world.ctrl_port), given_secret(), world.ranks_of(0), range(1, len(world.machines))
    )


def _gather(crew: Crew, world: World, handler: str, threads: int, meeting: _Meeting) -> None:
    """Starts this process's workers and waits until every rank, and every other machine's agent, has come."""
    reception = Reception(meeting.host, meeting.port, meeting.secret)
    try:
        address = functools.partial(Address, meeting.host, reception.port, meeting.secret)
        for rank in meeting.own_ranks:
            crew.start(Seat(rank, world, handler, threads, address, connect_seconds()))
        with meeting.announced(reception.port, meeting.secret):
            _Gathering(crew, world, handler, meeting, reception).run(connect_seconds())
    finally:
        reception.close()


class _Gathering:
    """Seats those who arrive until nobody is missing."""

    def __init__(self, crew: Crew, world: World, handler: str, meeting: _Meeting, reception: Reception) -> None:
        self._crew = crew
        self._expected = Hello(0, 0, 0, "", identity(), world.layout, handler)
        self._world = world
        self._meeting = meeting
        self._reception = reception

    def run(self, seconds: float) -> None:
        self._crew.listen(self._reception, lambda mask: None)
        began, is_told = time.monotonic(), False
        while missing := self._missing():
            self._crew.step(0.5)
            for channel, hello in self._reception.receive():
                self._seat(channel, hello)
            self._crew.raise_trouble(_STARTING)
            waited = time.monotonic() - began
            if waited > seconds:
                raise WorkerError(
                    f"{_STARTING}: {', '.join(missing)} did not come within {seconds:g} s; is the program started "
                    f"there too?"
                )
            if waited > _PATIENCE and not is_told and len(self._meeting.own_ranks) < self._world.size:
                is_told = True
                print(f"oneflow: the driver waits for {', '.join(missing)}, up to {seconds:g} s", file=sys.stderr)
        self._crew.unlisten(self._reception)

    def _missing(self) -> list[str]:
        ranks = [f"rank {rank}" for rank in range(self._world.size) if rank not in self._crew.workers]
        machines = [
            f"machine {number} ({self._world.machines[number]})"
            for number in self._meeting.machines
            if number not in self._crew.agents
        ]
        return machines + ranks

    def _seat(self, channel: Channel, hello: Hello) -> None:
        expected = self._expected
        if (hello.layout, hello.handler) != (expected.layout, expected.handler):
            problem = _difference(hello, expected)
            _refuse(channel, problem)
            raise WorkerError(f"{_STARTING}: machine {hello.machine} ({hello.host}) cannot take part: {problem}")
        if hello.rank in self._crew.workers or (hello.rank is None and hello.machine in self._crew.agents):
            _refuse(channel, "another process has taken its place already")
            return
        is_near = hello.identity == expected.identity and can_open_files_of(hello.pid)
        channel.queue(make_frame(Kind.HELLO, is_near))
        channel.pool = self._crew.pool if is_near else None
        self._crew.seat(
            Peer(hello, channel, is_watched=hello.rank in self._meeting.own_ranks or hello.machine in self._crew.agents)
        )


def _difference(hello: Hello, expected: Hello) -> str:
    """What two machines of one run are configured for differently."""
    names = "the device type", "the list of machines", "the number of devices a machine", "the handler"
    pairs = zip(names, (*hello.layout, hello.handler), (*expected.layout, expected.handler))
    return "; ".join(
        f"{name} is {there} there and {here} on the driver" for name, there, here in pairs if there != here
    )


def _refuse(channel: Channel, problem: str) -> None:
    channel.queue(make_frame(Kind.END, problem))
    channel.close()
