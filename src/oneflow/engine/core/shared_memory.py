"""Memory that processes of one host share without a name, so that nothing is left of it however they end.

A segment is an anonymous file (``memfd``). Its maker tells the peer its own process id and file number; the peer opens
the same file through ``/proc`` and maps it. The kernel frees it with the last process that has it open: no file system
entry, nothing to clean up.

The peer of a message's segment maps it privately: it sees what the maker wrote, and what it writes itself stays its
own, so one segment may serve many peers. The maker writes into it again only when every peer has said that it needs it
no more. The segment of a lane is mapped by both for good, and each writes its own part of it.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

ALIGNMENT = 64  # of arrays that lie behind each other: a cache line, and a multiple of every dtype
_NAME = "oneflow"
_FREE_LIMIT = 4  # segments kept for the next message: two directions of alternating sizes
_READ_LIMIT = 32  # segments that peers keep, each of which is an open file for them and for us
_GROWTH = 1 << 20  # segments are a multiple of this, so that messages of nearly equal sizes can share them


def aligned(size: int) -> int:
    """The bytes from the beginning of an array of that size to where the next one begins."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def path_of(pid: int, fd: int) -> str:
    """By what path other processes of the host open a file of one, as long as that has it open."""
    return f"/proc/{pid}/fd/{fd}"


class Reference(NamedTuple):
    """What a peer needs to find a segment."""

    pid: int
    fd: int
    size: int

    @property
    def path(self) -> str:
        """What a peer opens."""
        return path_of(self.pid, self.fd)


class Segment:
    """Shared memory of this process, written by it, read by ``readers`` peers."""

    def __init__(self, size: int) -> None:
        self.fd = os.memfd_create(_NAME, os.MFD_CLOEXEC)
        try:
            os.ftruncate(self.fd, size)
            self._map = mmap.mmap(self.fd, size)
        except BaseException:
            os.close(self.fd)
            raise
        self.size = size
        self.memory = memoryview(self._map)
        self.readers = 0

    @property
    def reference(self) -> Reference:
        return Reference(os.getpid(), self.fd, self.size)

    def close(self) -> None:
        """Lets go of it; the last array over it unmaps it."""
        del self.memory, self._map
        os.close(self.fd)


class SegmentPool:
    """The segments a process writes: those that peers still read, a few free ones for the messages to come, and
    lanes."""

    def __init__(self) -> None:
        self._read: dict[int, Segment] = {}
        self._free: list[Segment] = []  # the one freed last is at the end: its pages are the warmest
        self._kept: list[Segment] = []

    @property
    def has_room(self) -> bool:
        """False when peers keep so many segments that further arrays had better become memory of their own."""
        return len(self._read) < _READ_LIMIT

    def take(self, size: int, readers: int) -> Segment:
        """A segment of at least ``size`` bytes for ``readers`` peers; each gives it back with ``give_back``."""
        fitting = [segment for segment in self._free if size <= segment.size <= 4 * size + _GROWTH]
        if fitting:
            segment = fitting[-1]
            self._free.remove(segment)
        else:
            segment = _segment(size)
        segment.readers = readers
        self._read[segment.fd] = segment
        return segment

    def keep(self, size: int) -> Segment:
        """A segment of at least ``size`` bytes for good, which a peer may write as well."""
        self._kept.append(_segment(size))
        return self._kept[-1]

    def give_back(self, fd: int) -> None:
        """One reader has finished with the segment whose file number is ``fd``."""
        segment = self._read[fd]
        segment.readers -= 1
        if segment.readers:
            return
        self._free.append(self._read.pop(fd))
        if len(self._free) > _FREE_LIMIT:
            self._free.pop(0).close()

    def close(self) -> None:
        for segment in [*self._read.values(), *self._free, *self._kept]:
            segment.close()
        self._read.clear()
        self._free.clear()
        self._kept.clear()


def _segment(size: int) -> Segment:
    return Segment(max(1, -(-size // _GROWTH)) * _GROWTH)


def attach(reference: Reference, finished: Callable[[int], None]) -> np.ndarray:
    """A peer's segment as bytes. ``finished`` is called with its file number when the last array over it is gone."""
    view = _mapped(reference, mmap.MAP_PRIVATE)  # pages are shared until this process writes to them
    weakref.finalize(view, finished, reference.fd).atexit = False
    return np.frombuffer(view, np.uint8)


def attach_for_good(reference: Reference) -> np.ndarray:
    """A peer's segment as bytes, which both may write."""
    return np.frombuffer(_mapped(reference, mmap.MAP_SHARED), np.uint8)


def _mapped(reference: Reference, flags: int) -> mmap.mmap:
    fd = os.open(reference.path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return mmap.mmap(fd, reference.size, flags=flags)
    finally:
        os.close(fd)


def host_identity() -> tuple[str, ...]:
    """Equal for two processes that may share memory: the same kernel, the same processes in sight, the same network."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    return boot, os.readlink("/proc/self/ns/pid"), os.readlink("/proc/self/ns/net")


def can_open_files_of(pid: int) -> bool:
    """Whether this process may open another one's segments, as the system's rules for looking into processes have
    it."""
    try:
        os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    return True
