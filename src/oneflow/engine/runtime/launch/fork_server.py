"""The process that workers are forked from: it has loaded torch once, so a worker is there in milliseconds; and it
watches over them.

It is started fresh, not forked from the user's process, whose threads and GPU contexts would not survive a fork, and it
runs none of the user's script. It has one thread and never computes. Workers belong to groups, one per cluster; each
group has a connection to its owner:

    owner -> server   (seat, environment, folder, search path) and the file number of stderr: fork a worker
    server -> owner   Event: a worker has ended, was stopped, goes on
    owner closes      the group is killed; when all of it is gone the server closes its end too

When the owner's process ends, in whichever way, its connections close; the server kills every worker and ends. When the
server ends, the kernel kills the workers.
"""

from __future__ import annotations

import ctypes
import gc
import os
import selectors
import signal
import socket
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, NoReturn

import torch.distributed  # noqa: F401  # loaded here once, for every worker

from oneflow.engine.core.errors import WorkerError
from oneflow.engine.runtime.driver.worker import Seat, run_worker

_PR_SET_PDEATHSIG = 1
_CHANGES = os.WNOHANG | os.WUNTRACED | os.WCONTINUED


class Order(NamedTuple):
    """A worker to be started as its owner's process is at that moment."""

    seat: Seat
    environment: dict[str, str]
    folder: str
    path: list[str]


class Event(NamedTuple):
    """``status`` is what ``waitpid`` gave."""

    rank: int
    status: int

    @property
    def is_end(self) -> bool:
        return os.WIFEXITED(self.status) or os.WIFSIGNALED(self.status)

    @property
    def is_stop(self) -> bool:
        return os.WIFSTOPPED(self.status)

    def __str__(self) -> str:
        if self.is_stop:
            return f"was stopped by {_signal_name(os.WSTOPSIG(self.status))}"
        if os.WIFCONTINUED(self.status):
            return "goes on"
        return end_of(os.waitstatus_to_exitcode(self.status))


def end_of(code: int) -> str:
    """How a process ended, by its exit code, which is below 0 for a signal."""
    if code >= 0:
        return f"ended by itself with exit code {code}"
    hint = " (by kill -9, or by the kernel because memory ran out)" if -code == signal.SIGKILL else ""
    return f"was killed by {_signal_name(-code)}{hint}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class _Group:
    def __init__(self, fd: int) -> None:
        self.connection = Connection(fd)
        self.ranks: dict[int, int] = {}  # by process id
        self.is_closing = False

    def tell(self, event: Event) -> None:
        try:
            self.connection.send(event)
        except OSError:
            pass  # the owner has gone; its end of the connection says so


class ForkServer:
    """Serves one owner, the process at the other end of ``control``."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._groups: list[_Group] = []
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        for end in (self._woken, self._waker):
            end.setblocking(False)

    def run(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(
                number, signal.SIG_IGN
            )  # they may be sent to every process of a run; the driver decides, for the workers too
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._control, selectors.EVENT_READ, self._take_group)
        self._selector.register(self._woken, selectors.EVENT_READ, self._look_after)
        while True:
            for key, _ in self._selector.select():
                key.data()

    def _take_group(self) -> None:
        """A new group's connection, or the end of the owner."""
        _, fds, _, _ = socket.recv_fds(self._control, 1, 1)
        if not fds:
            self._end()
        group = _Group(fds[0])
        self._groups.append(group)
        self._selector.register(group.connection, selectors.EVENT_READ, lambda: self._serve(group))

    def _serve(self, group: _Group) -> None:
        try:
            order = group.connection.recv()
            with socket.socket(fileno=os.dup(group.connection.fileno())) as sock:
                _, (stderr,), _, _ = socket.recv_fds(sock, 1, 1)
        except (EOFError, OSError):
            self._close(group)
            return
        server = os.getpid()
        pid = os.fork()
        if not pid:
            self._become_worker(order, stderr, server)
        os.close(stderr)
        group.ranks[pid] = order.seat.rank

    def _close(self, group: _Group) -> None:
        self._selector.unregister(group.connection)
        group.is_closing = True
        for pid in group.ranks:
            os.kill(pid, signal.SIGKILL)
        self._forget_if_gone(group)

    def _forget_if_gone(self, group: _Group) -> None:
        if group.is_closing and not group.ranks:
            group.connection.close()
            self._groups.remove(group)

    def _look_after(self) -> None:
        """Takes note of every change in a worker since the last time."""
        self._woken.recv(1 << 10)
        while True:
            try:
                pid, status = os.waitpid(-1, _CHANGES)
            except ChildProcessError:
                return
            if not pid:
                return
            self._note(pid, status)

    def _note(self, pid: int, status: int) -> None:
        for group in self._groups:
            if pid in group.ranks:
                event = Event(group.ranks[pid], status)
                if event.is_end:
                    del group.ranks[pid]
                group.tell(event)
                self._forget_if_gone(group)
                return

    def _end(self) -> NoReturn:
        for pid in [pid for group in self._groups for pid in group.ranks]:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os._exit(0)

    def _become_worker(self, order: Order, stderr: int, server: int) -> NoReturn:
        code = 1
        try:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != server:  # it ended before the kernel knew what to do then
                os._exit(1)
            self._leave()
            _move_in(order, stderr)
            code = 0 if run_worker(order.seat) is None else 1
        except WorkerError as error:
            print(f"oneflow: {error}", file=sys.stderr)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _leave(self) -> None:
        """Drops what a worker has of the server."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for end in (self._control, self._woken, self._waker):
            end.close()
        for group in self._groups:
            group.connection.close()


def _move_in(order: Order, stderr: int) -> None:
    """Makes the worker's surroundings those of its owner. Its standard output is stderr: stdout belongs to the user's
    program."""
    os.dup2(stderr, 1)
    os.dup2(stderr, 2)
    os.close(stderr)
    os.environ.clear()
    os.environ.update(order.environment)
    os.chdir(order.folder)
    sys.path[:] = order.path


def main(arguments: list[Any]) -> None:
    gc.collect()
    gc.freeze()  # what was loaded is never looked at again by the workers' collectors, and stays shared memory
    ForkServer(socket.socket(fileno=int(arguments[0]))).run()
