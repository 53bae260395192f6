"""The driver's view of the processes of a run: sends to all, hears all, and notices when one is in trouble.

One loop over all connections, none of which is ever waited for alone: a worker that does not read, or a machine that is
gone, holds up nobody.
"""

from __future__ import annotations

import select
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from oneflow.engine.core.errors import WorkerError
from oneflow.engine.core.shared_memory import SegmentPool
from oneflow.engine.runtime.channel.channel import Channel, ChannelError, Frame, Kind, Message, make_frame
from oneflow.engine.runtime.driver.failures import Trouble, Troubles, Weight, raised
from oneflow.engine.runtime.driver.worker import Seat
from oneflow.engine.runtime.launch.fork_server import Event
from oneflow.engine.runtime.launch.launch import WorkerGroup
from oneflow.engine.runtime.launch.rendezvous import Hello

_TICK = 0.5
_FAREWELL_SECONDS = 1.0
# A stopped process may go on: somebody looks at it with a debugger, or has pressed Ctrl-Z and then continues.
_STOPPED_LIMIT = 3.0
# A process that answers pings or pulses from a thread, and nothing else tells whether it lives.
_SILENCE_LIMIT = 7.0
# One whose machine's process says that it runs: something in it may keep the interpreter's lock for long.
_WATCHED_SILENCE_LIMIT = 60.0


@dataclass
class Peer:
    """A worker, or the agent of another machine when it has no rank."""

    hello: Hello
    channel: Channel
    is_watched: bool = False  # by a process of its machine, which tells when it ends or is stopped
    is_lost: bool = False
    silence: float = 0.0
    stopped: float | None = None
    stop: str = ""

    @property
    def name(self) -> str:
        if self.hello.rank is None:
            return f"machine {self.hello.machine} ({self.hello.host})"
        return f"rank {self.hello.rank} on {self.hello.host}"


class Crew:
    """Every process that takes part, and what is known of it. Times are of the driver's own running: while it is
    stopped, none passes."""

    def __init__(self, pool: SegmentPool, group: WorkerGroup) -> None:
        self.pool = pool
        self.troubles = Troubles()
        self.workers: dict[int, Peer] = {}
        self.agents: dict[int, Peer] = {}
        self.elapsed = 0.0
        self._group = group
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[int], None]] = {}
        self._waiting: set[int] = set()
        self._answers: dict[int, Any] = {}
        self._last_tick = time.monotonic()
        self.listen(group, self._hear_of_own)

    def start(self, seat: Seat) -> None:
        """Starts a worker on this machine; it comes by itself."""
        self._group.start(seat)

    def listen(self, source: Any, callback: Callable[[int], None]) -> None:
        """Has the callback called, in ``step``, when there is something to read."""
        self._epoll.register(source, select.EPOLLIN)
        self._callbacks[source.fileno()] = callback

    def unlisten(self, source: Any) -> None:
        self._epoll.unregister(source)
        del self._callbacks[source.fileno()]

    def seat(self, peer: Peer) -> None:
        if peer.hello.rank is None:
            self.agents[peer.hello.machine] = peer
        else:
            self.workers[peer.hello.rank] = peer
        self.listen(peer.channel, lambda mask: self._attend(peer, mask))

    @property
    def _peers(self) -> list[Peer]:
        return [*self.workers.values(), *self.agents.values()]

    def exchange(self, frames: Sequence[tuple[int, Frame]], what: str, seconds: float) -> list[Any]:
        """Sends each rank its frame and waits for every answer; the answers in the order of the frames. Raises what
        went wrong."""
        self._answers.clear()
        self._waiting = {rank for rank, _ in frames}
        self._begin()
        for rank, frame in frames:
            self._post(self.workers[rank], frame)
        while self._waiting:
            self.step(_TICK if self.troubles else min(_TICK, seconds))
            self.raise_trouble(what)
            if self.elapsed > seconds:
                raise WorkerError(
                    f"{what}: {self._unanswered()} did not answer within {seconds:g} s; ONEFLOW_STEP_TIMEOUT sets "
                    f"another limit"
                )
        return [self._answers.pop(rank) for rank, _ in frames]

    def _unanswered(self) -> str:
        return ", ".join(self.workers[rank].name for rank in sorted(self._waiting))

    def _begin(self) -> None:
        self.elapsed = 0.0
        self._last_tick = time.monotonic()
        for peer in self._peers:
            peer.silence = 0.0

    def raise_trouble(self, what: str) -> None:
        trouble = self.troubles.verdict()
        if trouble is not None:
            raise trouble.error(what)

    def step(self, seconds: float) -> None:
        """Waits for something to happen, at most for a time, and deals with it."""
        for fd, mask in self._epoll.poll(min(seconds, 0.05) if self.troubles else seconds):
            self._callbacks[fd](mask)
        passed = time.monotonic() - self._last_tick
        if passed >= min(seconds, _TICK):
            self._last_tick += passed
            self._tick(min(passed, 2 * _TICK))

    def _attend(self, peer: Peer, mask: int) -> None:
        peer.silence = 0.0
        try:
            if mask & select.EPOLLOUT and peer.channel.flush():
                self._epoll.modify(peer.channel, select.EPOLLIN)
            if mask & ~select.EPOLLOUT:
                for message in peer.channel.read():
                    self._take(peer, message)
        except ChannelError as error:
            self._lose(peer, str(error))
        except Exception as error:  # an answer that cannot be unpickled here
            self.troubles.add(
                Trouble(
                    peer.name, f"gave an answer that cannot be read ({type(error).__name__}: {error})", Weight.CAUSE
                )
            )

    def _lose(self, peer: Peer, reason: str) -> None:
        peer.is_lost = True
        self.unlisten(peer.channel)
        self.troubles.add(Trouble(peer.name, f"is gone: {reason}", Weight.LOST))

    def _post(self, peer: Peer, frame: Frame) -> None:
        if peer.is_lost:
            return
        try:
            if not peer.channel.queue(frame):
                self._epoll.modify(peer.channel, select.EPOLLIN | select.EPOLLOUT)
        except ChannelError as error:
            self._lose(peer, str(error))

    def _take(self, peer: Peer, message: Message) -> None:
        rank = peer.hello.rank
        if message.kind is Kind.REPLY and rank in self._waiting:
            self._waiting.remove(rank)
            (self._answers[rank],) = message.tree
        elif message.kind is Kind.ERROR:
            self.troubles.add(raised(peer.name, message.tree))
        elif message.kind is Kind.EVENT:
            self._note(Event(*message.tree))
        elif message.kind is Kind.END:
            self.troubles.add(Trouble(peer.name, f"has left: {message.tree}", Weight.CAUSE))

    def _hear_of_own(self, mask: int) -> None:
        try:
            for event in self._group.events():
                self._note(event)
        except WorkerError as error:
            self.unlisten(self._group)
            self.troubles.add(Trouble("this machine", f"lost its workers: {error}", Weight.CAUSE))

    def _note(self, event: Event) -> None:
        peer = self.workers.get(event.rank)
        if event.is_end:
            who = f"rank {event.rank}" if peer is None else peer.name
            self.troubles.add(Trouble(who, str(event), Weight.CAUSE))
        elif peer is not None:
            peer.stopped = 0.0 if event.is_stop else None
            peer.stop = str(event)

    def _tick(self, passed: float) -> None:
        self.elapsed += passed
        for agent in self.agents.values():
            self._look_at(agent, passed, _SILENCE_LIMIT)
            self._post(agent, make_frame(Kind.PING))
        for rank in self._waiting:
            peer = self.workers[rank]
            self._look_at(peer, passed, _WATCHED_SILENCE_LIMIT if peer.is_watched else _SILENCE_LIMIT)

    def _look_at(self, peer: Peer, passed: float, limit: float) -> None:
        peer.silence += passed
        if peer.stopped is not None:
            peer.stopped += passed
            if peer.stopped > _STOPPED_LIMIT:
                self.troubles.add(Trouble(peer.name, f"{peer.stop} and did not go on", Weight.CAUSE))
        if peer.silence > limit:
            self.troubles.add(
                Trouble(peer.name, f"gave no sign of life for {limit:.0f} s; it is stopped or it hangs", Weight.CAUSE)
            )

    def close(self, reason: str | None) -> None:
        """Ends every process of this machine, and has the others end theirs, with the reason if it is a failure."""
        for peer in self._peers:
            self._dismiss(peer, reason)
        self._group.close()
        self._see_off([peer for peer in self._peers if peer.channel.pool is None and not peer.is_lost])
        for peer in self._peers:
            peer.channel.close()
        self._answers.clear()
        self._epoll.close()
        self.pool.close()

    def _dismiss(self, peer: Peer, reason: str | None) -> None:
        try:
            peer.channel.queue(make_frame(Kind.END, reason))
            peer.channel.socket.shutdown(socket.SHUT_WR)
        except (ChannelError, OSError):
            pass  # it does not listen any more

    def _see_off(self, peers: list[Peer]) -> None:
        """Reads to the end of each connection, for a moment: closing it earlier, with words unread, would make the peer
        lose ours."""
        with selectors.DefaultSelector() as selector:
            for peer in peers:
                selector.register(peer.channel, selectors.EVENT_READ, peer.channel)
            deadline = time.monotonic() + _FAREWELL_SECONDS
            while selector.get_map() and time.monotonic() < deadline:
                for key, _ in selector.select(max(0.0, deadline - time.monotonic())):
                    if _is_at_end(key.data):
                        selector.unregister(key.fileobj)

    def abandon(self) -> None:
        """Lets go of all of it in a child forked from the driver, without a word to anyone."""
        for peer in self._peers:
            peer.channel.socket.close()
        self._group.abandon()
        self._epoll.close()


def _is_at_end(channel: Channel) -> bool:
    try:
        return not channel.socket.recv(1 << 16)
    except BlockingIOError:
        return False
    except OSError:
        return True
