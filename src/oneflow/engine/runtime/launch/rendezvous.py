"""Rendezvous, how the processes of a run find each other: the driver's reception, and the call that workers and agents
make there."""

from __future__ import annotations

import errno
import os
import selectors
import socket
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from oneflow.engine.core.errors import WorkerError
from oneflow.engine.core.shared_memory import SegmentPool, host_identity
from oneflow.engine.runtime.channel.channel import Channel, ChannelError, Kind, configure, make_frame
from oneflow.engine.runtime.channel.handshake import (
    Handshake,
    HandshakeError,
    SecretError,
    VersionError,
    conduct,
    meet_driver,
    receive_peer,
)

_HANDSHAKE_SECONDS = 5.0
_EXHAUSTED = frozenset([errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
_WAITING_ROOM = 256  # peers that have not proved themselves yet, at the same time
_PATIENCE = 3.0  # seconds before a peer says what it waits for
_RETRY_SECONDS = 0.1


class Hello(NamedTuple):
    """The first message of a peer: a worker with its rank, or, without one, the agent of a machine."""

    rank: int | None
    machine: int
    pid: int
    host: str
    identity: tuple[str, ...]
    layout: tuple
    handler: str


class Address(NamedTuple):
    """Where the driver listens, and the secret to be used there."""

    host: str
    port: int
    secret: bytes


def identity() -> tuple[str, ...]:
    """Equal for two processes that may share memory."""
    return (*host_identity(), str(os.getuid()))


def call_driver(find: Callable[[], Address], hello: Hello, seconds: float) -> Channel:
    """Connects to the driver and says hello; tries again until it is up. Says once on stderr what it waits for."""
    began, told, problem = time.monotonic(), False, ""
    while time.monotonic() - began < seconds:
        try:
            return _call_once(find(), hello)
        except (OSError, HandshakeError, ChannelError) as error:
            if isinstance(error, (SecretError, VersionError)):
                raise WorkerError(f"{_who(hello)} cannot join the driver: {error}") from error
            problem = str(error)
        if not told and time.monotonic() - began > _PATIENCE:
            told = True
            print(f"oneflow: {_who(hello)} waits for the driver, up to {seconds:.0f} s ({problem})", file=sys.stderr)
        time.sleep(_RETRY_SECONDS)
    raise WorkerError(
        f"{_who(hello)} did not reach the driver within {seconds:.0f} s: {problem}. Start the program on the first "
        f"machine too, "
        "or set ONEFLOW_CONNECT_TIMEOUT to more seconds"
    )


def _who(hello: Hello) -> str:
    return f"machine {hello.machine} ({hello.host})" if hello.rank is None else f"rank {hello.rank} on {hello.host}"


def _call_once(address: Address, hello: Hello) -> Channel:
    sock = socket.create_connection((address.host, address.port), timeout=_HANDSHAKE_SECONDS)
    try:
        configure(sock)
        conduct(sock, meet_driver(address.secret), _HANDSHAKE_SECONDS)
        channel = Channel(sock)
        channel.send(make_frame(Kind.HELLO, hello), _HANDSHAKE_SECONDS)
        kind, answer = channel.receive(_HANDSHAKE_SECONDS)
    except BaseException:
        sock.close()
        raise
    if kind is Kind.END:
        channel.close()
        raise WorkerError(f"the driver refuses {_who(hello)}: {answer}")
    channel.pool = SegmentPool() if answer else None
    return channel


class _Guest:
    """A connection that has not proved itself yet."""

    def __init__(self, sock: socket.socket, origin: str, secret: bytes) -> None:
        configure(sock)
        self.socket = sock
        self.origin = origin
        self.deadline = time.monotonic() + _HANDSHAKE_SECONDS
        self._handshake: Handshake = receive_peer(secret)
        self._channel: Channel | None = None
        self._data = b""
        outgoing, self._wanted = next(self._handshake)
        sock.send(outgoing)

    def advance(self) -> tuple[Channel, Hello] | None:
        """Goes on with what has arrived; the channel and the hello when all is said."""
        if self._channel is None:
            part = self.socket.recv(self._wanted - len(self._data))
            if not part:
                raise HandshakeError("it closed the connection")
            self._data += part
            if len(self._data) == self._wanted:
                self._finish()
            return None
        messages = self._channel.read()
        if not messages:
            return None
        message = messages[0]  # a peer says no more before it is answered
        if message.kind is not Kind.HELLO:
            raise HandshakeError("it did not say who it is")
        return self._channel, Hello(*message.tree)

    def _finish(self) -> None:
        try:
            outgoing, _ = self._handshake.send(self._data)
            self.socket.send(outgoing)
            next(self._handshake)
        except StopIteration:
            self._channel = Channel(self.socket)


class Reception:
    """The driver's listening socket. Peers that are silent, strange or without the secret are shown out, and change
    nothing."""

    def __init__(self, host: str, port: int, secret: bytes) -> None:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        try:
            self._listener = socket.create_server((host, port), family=family, backlog=128)
        except OSError as error:
            raise WorkerError(
                f"the driver cannot listen on {host}:{port}: {error.strerror or error}; choose another control port"
            ) from error
        self._listener.setblocking(False)
        self._secret = secret
        self._selector = selectors.EpollSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._guests: dict[int, _Guest] = {}
        self._told: set[tuple[str, str]] = set()

    @property
    def port(self) -> int:
        return self._listener.getsockname()[1]

    def fileno(self) -> int:
        """Readable when ``receive`` has something to do."""
        return self._selector.fileno()

    def receive(self) -> list[tuple[Channel, Hello]]:
        """Does what can be done without waiting; the peers that have proved themselves and said who they are."""
        arrived = []
        for key, _ in self._selector.select(0):
            if key.fileobj is self._listener:
                self._admit()
            elif (found := self._attend(self._guests[key.fd])) is not None:
                arrived.append(found)
        now = time.monotonic()
        for guest in [guest for guest in self._guests.values() if guest.deadline < now]:
            self._show_out(guest, "it was silent")
        return arrived

    def _admit(self) -> None:
        try:
            sock, address = self._listener.accept()
        except OSError as error:
            if error.errno in _EXHAUSTED:  # it would ask again at once, and for ever
                raise WorkerError(
                    f"the driver cannot take the connection of a worker: {error.strerror}; raise the limit (ulimit -n)"
                ) from error
            return  # it has gone again
        if len(self._guests) >= _WAITING_ROOM:
            sock.close()
            return
        try:
            guest = _Guest(sock, str(address[0]), self._secret)
        except OSError:
            sock.close()
            return
        self._guests[sock.fileno()] = guest
        self._selector.register(sock, selectors.EVENT_READ)

    def _attend(self, guest: _Guest) -> tuple[Channel, Hello] | None:
        try:
            found = guest.advance()
        except VersionError as error:  # one of ours, so its user is ours and must be told
            self._show_out(guest, str(error))
            raise WorkerError(f"a process from {guest.origin} cannot take part: {error}") from error
        except (OSError, HandshakeError, ChannelError) as error:
            self._show_out(guest, str(error))
            return None
        if found is not None:
            self._forget(guest)
        return found

    def _show_out(self, guest: _Guest, reason: str) -> None:
        self._forget(guest)
        guest.socket.close()
        if (guest.origin, reason) not in self._told:
            self._told.add((guest.origin, reason))
            print(f"oneflow: the driver dropped a connection from {guest.origin}: {reason}", file=sys.stderr)

    def _forget(self, guest: _Guest) -> None:
        self._selector.unregister(guest.socket)
        del self._guests[guest.socket.fileno()]

    def close(self) -> None:
        for guest in list(self._guests.values()):
            self._forget(guest)
            guest.socket.close()
        self._selector.close()
        self._listener.close()
