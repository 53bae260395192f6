"""The control channel (remote procedure calls) between the driver and the other processes of a run.

How two processes come to speak (``handshake.py``):

    driver listens;  peer connects
    driver -> peer   greeting: magic, protocol number, version, random challenge
    peer -> driver   greeting of its own, and a proof: HMAC of both greetings under the shared secret
    driver -> peer   verdict, and the driver's proof
    peer -> driver   the first frame: a HELLO that says which rank, or which machine, the peer is

Greetings, proofs and verdicts have fixed sizes. Nothing is unpickled, and nothing of a size that a peer chooses is
allocated, before both sides have proved that they know the secret. The bytes that follow are neither encrypted nor
signed, as those of torch's collectives are not.

What they say then is frames:

    header   marker, kind, bytes of table, bytes of tree, bytes of arrays
    table    pickled: the segment of shared memory, if any, and for each array its description and where its bytes are
    tree     pickled: plain Python values, with a number where an array stands
    arrays   the bytes of arrays that are small or go to another host, each aligned

Arrays of 64 KB or more between processes of one host stand in one segment of shared memory per frame instead
(``shared_memory.py``), unless the receiver keeps too many of them already. The receiver's arrays lie over the received
memory: nothing is copied a second time. When the last of them is gone, the next frame to the sender is preceded by one
of kind RELEASED, and the sender may write into that segment again.

A call is a frame CALL of ``(method, arguments)`` to a worker, answered by REPLY or ERROR. While a worker is at work it
sends PULSE, a heartbeat, so that one that is stopped is told from one that is slow. PING is answered by PULSE at once.
EVENT tells the driver of a change in a worker of another machine. END says that the run is over, with a reason if it
failed; a connection that ends without it is a failure.
"""

from __future__ import annotations

import enum
import pickle
import select
import socket
import struct
import time
from collections import deque
from typing import Any, NamedTuple

import numpy as np

from oneflow.engine.core.shared_memory import ALIGNMENT, Reference, SegmentPool, aligned, attach
from oneflow.engine.runtime.channel.payload import Description, Leaf, array_over, put_together, take_apart

SHARED_FROM = 64 << 10  # below this a copy through the socket costs less than a mapping
_HEADER = struct.Struct("!4sB3xIIQ")
_MARKER = b"OFfr"
_TREE_LIMIT = 1 << 30
_ARRAYS_LIMIT = 1 << 40
_PIECES_LIMIT = 512  # of one sendmsg; the kernel takes 1024
_READ_AHEAD = 64 << 10
_PADDING = bytes(ALIGNMENT)
_NO_BYTES = np.empty(0, np.uint8)

# A cut link is an error after about five seconds: of silence (keepalive) or of bytes that nobody confirms (user
# timeout).
_KEEPALIVE = {
    socket.TCP_KEEPIDLE: 2,
    socket.TCP_KEEPINTVL: 1,
    socket.TCP_KEEPCNT: 3,
    socket.TCP_USER_TIMEOUT: 5000,
    socket.TCP_NODELAY: 1,
}


class Kind(enum.IntEnum):
    HELLO = 1
    CALL = 2
    REPLY = 3
    ERROR = 4
    PULSE = 5
    PING = 6
    EVENT = 7
    RELEASED = 8
    END = 9


_KINDS = {int(kind): kind for kind in Kind}


class Message(NamedTuple):
    kind: Kind
    tree: Any


class ChannelError(Exception):
    """The peer is gone, or what came is not a frame."""


class Frame(NamedTuple):
    """A message ready to be sent, any number of times. The pieces refer to the arrays' own memory."""

    pieces: list[Any]
    size: int


Table = tuple[tuple[int, int, int] | None, list[tuple[tuple, bool, int]]]


def make_frame(kind: Kind, tree: Any = None, pool: SegmentPool | None = None, readers: int = 1) -> Frame:
    """A frame; with a pool, for ``readers`` peers of this host that each give its segment back."""
    pickled, leaves = take_apart(tree) if tree is not None else (b"", [])
    if not leaves:
        return _assemble(kind, b"", pickled, [], 0)
    if pool is not None and not pool.has_room:
        pool = None
    is_shared = [pool is not None and leaf.description.nbytes >= SHARED_FROM for leaf in leaves]
    reference, shared_places = _share([leaf for leaf, shared in zip(leaves, is_shared) if shared], pool, readers)
    raw, raw_places, size = _line_up([leaf for leaf, shared in zip(leaves, is_shared) if not shared])
    shared_place, raw_place = iter(shared_places), iter(raw_places)
    entries = [
        (tuple(leaf.description), shared, next(shared_place if shared else raw_place))
        for leaf, shared in zip(leaves, is_shared)
    ]
    table = pickle.dumps((reference and tuple(reference), entries), pickle.HIGHEST_PROTOCOL)
    return _assemble(kind, table, pickled, raw, size)


def _assemble(kind: Kind, table: bytes, tree: bytes, raw: list[Any], raw_size: int) -> Frame:
    _check_sizes(len(table), len(tree), raw_size)
    head = _HEADER.pack(_MARKER, kind, len(table), len(tree), raw_size) + table + tree
    return Frame([head, *raw], len(head) + raw_size)


def _share(leaves: list[Leaf], pool: SegmentPool | None, readers: int) -> tuple[Reference | None, list[int]]:
    """Copies the arrays into one segment; where it is and where in it they are."""
    if not leaves or pool is None:
        return None, []
    places, size = _places(leaves)
    segment = pool.take(size, readers)
    for leaf, place in zip(leaves, places):
        leaf.write(segment.memory[place : place + leaf.description.nbytes])
    return segment.reference, places


def _line_up(leaves: list[Leaf]) -> tuple[list[Any], list[int], int]:
    """The arrays' bytes with padding between them, where each is in the line, and how long it is."""
    places, size = _places(leaves)
    pieces: list[Any] = []
    for leaf in leaves:
        nbytes = leaf.description.nbytes
        if nbytes:
            pieces.append(leaf.bytes())
        if nbytes % ALIGNMENT:
            pieces.append(_PADDING[nbytes % ALIGNMENT :])
    return pieces, places, size


def _places(leaves: list[Leaf]) -> tuple[list[int], int]:
    places, end = [], 0
    for leaf in leaves:
        places.append(end)
        end += aligned(leaf.description.nbytes)
    return places, end


def _check_sizes(table: int, tree: int, arrays: int) -> None:
    if table + tree > _TREE_LIMIT or arrays > _ARRAYS_LIMIT:
        raise ChannelError(
            f"a message of {table + tree} bytes and {arrays} bytes of arrays; the limits are {_TREE_LIMIT} and "
            f"{_ARRAYS_LIMIT}"
        )


class _Sizes(NamedTuple):
    """A frame's header."""

    kind: int
    table: int
    tree: int
    arrays: int


def _read_header(data: memoryview, place: int) -> tuple[int, int, int, int]:
    """What ``_Sizes`` has, as a plain tuple: small frames come in every step."""
    marker, kind, table, tree, arrays = _HEADER.unpack_from(data, place)
    if marker != _MARKER:
        raise ChannelError("what came is not a frame of this protocol")
    _check_sizes(table, tree, arrays)
    return kind, table, tree, arrays


class _LargeFrame:
    """A frame on its way in that is larger than the read-ahead: its bytes go straight to where they stay."""

    def __init__(self, sizes: _Sizes) -> None:
        self.sizes = sizes
        self.body = memoryview(bytearray(sizes.table + sizes.tree))
        self.arrays = np.empty(sizes.arrays, np.uint8)
        self._targets = [part for part in (self.body, self.arrays.data) if part]

    @property
    def target(self) -> memoryview:
        return self._targets[0]

    def advance(self, count: int) -> bool:
        """Takes note of bytes that were written to the target; True when the frame is whole."""
        self._targets[0] = self._targets[0][count:]
        if not self._targets[0]:
            del self._targets[0]
        return not self._targets

    def take(self, data: memoryview) -> None:
        """The frame's first bytes, which were read ahead; never all of them."""
        while data:
            count = min(len(data), len(self.target))
            self.target[:count] = data[:count]
            self.advance(count)
            data = data[count:]


class Channel:
    """One authenticated connection. Frames go out in order; reading never waits unless asked to.

    ``pool`` is given when the peer shares this host's memory. The caller may send from one thread at a time.
    """

    def __init__(self, sock: socket.socket, pool: SegmentPool | None = None) -> None:
        configure(sock)
        self.socket = sock
        self.pool = pool
        self._poll = select.poll()
        self._outgoing: deque[memoryview] = deque()
        self._finished: deque[int] = (
            deque()
        )  # segments of the peer that no array lies over any more; appended to by the collector
        self._ahead = memoryview(bytearray(_READ_AHEAD))  # so that a small frame is one system call
        self._held = 0  # bytes that were read ahead
        self._large: _LargeFrame | None = None
        self._unread: deque[Message] = deque()

    def fileno(self) -> int:
        return self.socket.fileno()

    def queue(self, frame: Frame) -> bool:
        """Sends what goes at once and keeps the rest for ``flush``; True when all is gone."""
        if self._finished:
            released = [self._finished.popleft() for _ in range(len(self._finished))]
            self._outgoing.extend(map(memoryview, make_frame(Kind.RELEASED, released).pieces))
        if not self._outgoing and len(frame.pieces) == 1:  # as most are
            sent = self._send(frame.pieces)
            if sent == frame.size:
                return True
            self._outgoing.append(memoryview(frame.pieces[0])[sent:])
        else:
            self._outgoing.extend(map(memoryview, frame.pieces))
        return self.flush()

    def flush(self) -> bool:
        """Goes on sending without waiting; True when nothing is left to send."""
        while self._outgoing:
            sent = self._send([self._outgoing[place] for place in range(min(len(self._outgoing), _PIECES_LIMIT))])
            if not sent:
                return False
            self._drop(sent)
        return True

    def _send(self, pieces: list[Any]) -> int:
        try:
            return self.socket.sendmsg(pieces, [], socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise ChannelError(_explain(error)) from error

    def _drop(self, sent: int) -> None:
        while sent:
            piece = self._outgoing.popleft()
            if sent < len(piece):
                self._outgoing.appendleft(piece[sent:])
                return
            sent -= len(piece)

    def read(self) -> list[Message]:
        """The messages that are complete after one look at what has arrived. Never waits."""
        large = self._large
        if large is None:
            self._held += self._receive(self._ahead[self._held :])
            return self._small_frames()
        if not large.advance(self._receive(large.target)):
            return []
        self._large = None
        return self._open(large.sizes.kind, large.sizes.table, large.body, large.arrays)

    def _receive(self, target: memoryview) -> int:
        try:
            count = self.socket.recv_into(target)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise ChannelError(_explain(error)) from error
        if not count:
            raise ChannelError("the connection was closed")
        return count

    def _small_frames(self) -> list[Message]:
        """Opens the frames that were read ahead; goes over to reading a large one where it begins."""
        messages: list[Message] = []
        place, end = 0, self._held
        try:
            while end - place >= _HEADER.size:
                kind, table, tree, size = _read_header(self._ahead, place)
                begin = place + _HEADER.size
                body, after = begin + table + tree, begin + table + tree + size
                if after - place > _READ_AHEAD:
                    self._large = _LargeFrame(_Sizes(kind, table, tree, size))
                    self._large.take(self._ahead[begin:end])
                    place = end
                elif after > end:
                    break
                else:
                    place = after
                    arrays = np.frombuffer(bytearray(self._ahead[body:after]), np.uint8) if size else _NO_BYTES
                    messages += self._open(kind, table, self._ahead[begin:body], arrays)
        finally:  # also when a tree cannot be unpickled: the next frame can
            if place < end:
                self._ahead[: end - place] = self._ahead[place:end]
            self._held = end - place
        return messages

    def _open(self, number: int, table: int, body: memoryview, raw: np.ndarray) -> list[Message]:
        kind = _KINDS.get(number) or Kind(number)
        tree: Any = None
        if table:
            tree = put_together(body[table:], self._arrays(pickle.loads(body[:table]), raw))
        elif body:
            tree = pickle.loads(body)
        if kind is not Kind.RELEASED:
            return [Message(kind, tree)]
        assert self.pool is not None, "only a peer with whom we share memory has anything to release"
        for fd in tree:
            self.pool.give_back(fd)
        return []

    def _arrays(self, table: Table, raw: np.ndarray) -> list[Any]:
        reference, entries = table
        shared = attach(Reference(*reference), self._finished.append) if reference is not None else raw[:0]
        memory = {True: shared, False: raw}
        return [array_over(Description(*what), memory[is_shared], place) for what, is_shared, place in entries]

    def send(self, frame: Frame, timeout: float | None = None) -> None:
        """Sends a whole frame, waiting for room."""
        deadline = None if timeout is None else time.monotonic() + timeout
        is_sent = self.queue(frame)
        while not is_sent:
            self._wait(select.POLLOUT, deadline)
            is_sent = self.flush()

    def receive(self, timeout: float | None = None) -> Message:
        """Waits for the next message."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._unread:
            self._wait(select.POLLIN, deadline)
            self._unread.extend(self.read())
        return self._unread.popleft()

    def _wait(self, event: int, deadline: float | None) -> None:
        self._poll.register(self.socket, event)
        if not self._poll.poll(None if deadline is None else max(0, deadline - time.monotonic()) * 1000):
            raise ChannelError("the peer did not answer in time")

    def close(self) -> None:
        """Ends the connection for both sides, also where a forked child has a copy of it."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the peer was faster
        self.socket.close()


def configure(sock: socket.socket) -> None:
    """No delay of small messages, no waiting, and an error soon after the link is cut."""
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _explain(error: OSError) -> str:
    return f"the connection was lost ({error.strerror or error})"
