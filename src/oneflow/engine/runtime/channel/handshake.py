"""Mutual authentication by a shared secret, before anything else is said. The first lines of ``channel.py`` show the
order of the messages.

Both sides are generators that do no I/O: they give ``(bytes to send, number of bytes to read)`` and are sent the bytes
that were read. So the driver can serve any number of peers at once, silent ones among them, and the tests need no
socket.
"""

from __future__ import annotations

import hmac
import secrets
import select
import socket
import struct
import time
from collections.abc import Generator
from typing import NamedTuple

from oneflow.version import __version__

PROTOCOL = 1
_MAGIC = b"ONEFLOW\0"
_GREETING = struct.Struct("!8sH30s32s")  # magic, protocol, version, challenge: this order never changes
_PROOF_SIZE = 32
_ACCEPTED, _WRONG_SECRET, _WRONG_VERSION = b"A", b"S", b"V"

Handshake = Generator[tuple[bytes, int], bytes, None]


class HandshakeError(Exception):
    """The peer is not one of ours."""


class SecretError(HandshakeError):
    """The peer speaks our protocol and has another secret."""


class VersionError(HandshakeError):
    """The peer has our secret and runs another version."""


class _Greeting(NamedTuple):
    magic: bytes
    protocol: int
    version: bytes
    challenge: bytes

    @property
    def dialect(self) -> str:
        return f"oneflow {self.version.rstrip(bytes(1)).decode('ascii', 'replace')} (protocol {self.protocol})"


def receive_peer(secret: bytes) -> Handshake:
    """The driver's side. A peer without the secret learns nothing but that, and is never a reason to stop."""
    mine = _greet()
    answer = yield mine, _GREETING.size + _PROOF_SIZE
    theirs, proof = answer[: _GREETING.size], answer[_GREETING.size :]
    peer = _read(theirs)
    if not hmac.compare_digest(proof, _prove(secret, b"peer", mine, theirs)):
        yield _WRONG_SECRET + bytes(_PROOF_SIZE), 0
        raise SecretError("it does not have this run's secret; set the same ONEFLOW_SECRET on every machine")
    own = _read(mine)
    verdict = _ACCEPTED if peer.dialect == own.dialect else _WRONG_VERSION
    yield verdict + _prove(secret, b"driver", mine, theirs), 0
    if verdict == _WRONG_VERSION:
        raise VersionError(
            f"it runs {peer.dialect} and this machine {own.dialect}; install the same version on every machine"
        )


def meet_driver(secret: bytes) -> Handshake:
    """The side of a worker or an agent."""
    theirs = yield b"", _GREETING.size
    driver, mine = _read(theirs), _greet()
    answer = yield mine + _prove(secret, b"peer", theirs, mine), 1 + _PROOF_SIZE
    verdict, proof = answer[:1], answer[1:]
    if verdict == _WRONG_SECRET or not hmac.compare_digest(proof, _prove(secret, b"driver", theirs, mine)):
        raise SecretError("the driver has another secret; set the same ONEFLOW_SECRET on every machine")
    if verdict != _ACCEPTED:
        raise VersionError(
            f"the driver runs {driver.dialect} and this machine {_read(mine).dialect}; install the same version on "
            f"every machine"
        )


def conduct(sock: socket.socket, handshake: Handshake, seconds: float) -> None:
    """Leads a handshake over a socket that does not wait, within a time."""
    deadline = time.monotonic() + seconds
    outgoing, wanted = next(handshake)
    try:
        while True:
            _until(sock, select.POLLOUT, deadline)
            sock.sendall(outgoing)  # far less than the socket's buffer
            outgoing, wanted = handshake.send(_read_exactly(sock, wanted, deadline))
    except StopIteration:
        return
    except OSError as error:
        raise HandshakeError(f"the connection was lost ({error})") from error


def _read_exactly(sock: socket.socket, count: int, deadline: float) -> bytes:
    data = b""
    while len(data) < count:
        _until(sock, select.POLLIN, deadline)
        part = sock.recv(count - len(data))
        if not part:
            raise HandshakeError("the connection was closed")
        data += part
    return data


def _until(sock: socket.socket, event: int, deadline: float) -> None:
    poll = select.poll()
    poll.register(sock, event)
    if not poll.poll(max(0, deadline - time.monotonic()) * 1000):
        raise HandshakeError("no answer in time")


def _greet() -> bytes:
    return _GREETING.pack(_MAGIC, PROTOCOL, __version__.encode("ascii"), secrets.token_bytes(32))


def _read(greeting: bytes) -> _Greeting:
    found = _Greeting(*_GREETING.unpack(greeting))
    if found.magic != _MAGIC:
        raise HandshakeError("it does not speak oneflow's protocol")
    return found


def _prove(secret: bytes, role: bytes, drivers: bytes, peers: bytes) -> bytes:
    """Bound to both challenges, so it cannot be replayed, and to the role, so it cannot be sent back to its maker."""
    return hmac.digest(secret, role + drivers + peers, "sha256")
