"""Starting worker processes on this machine, and hearing of their ends: the owner's side of ``fork_server.py``."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import threading
import weakref
from multiprocessing.connection import Connection

from oneflow.engine.core.errors import WorkerError
from oneflow.engine.runtime.driver.worker import Seat
from oneflow.engine.runtime.launch.fork_server import Event, Order, end_of

_ENDING_SECONDS = 5.0
_MAIN = "import json, sys; sys.path[:] = json.loads(sys.argv[2]); from oneflow.engine.runtime.launch import fork_server; fork_server.main(sys.argv[1:])"


class WorkerGroup:
    """Workers that were started together and end together."""

    def __init__(self, sock: socket.socket, server: _Server) -> None:
        self._socket = sock
        self._connection = Connection(os.dup(sock.fileno()))
        self._server = server

    def start(self, seat: Seat) -> None:
        """Starts a worker with this process's environment, folder, search path and stderr; does not wait for it."""
        try:
            self._connection.send(
                Order(seat, dict(os.environ), os.getcwd(), [os.path.abspath(entry) for entry in sys.path])
            )
            socket.send_fds(self._socket, [b"\0"], [2])
        except OSError as error:
            raise WorkerError(
                f"the process that starts workers has ended ({error}); its own message is on stderr"
            ) from error

    def fileno(self) -> int:
        return self._connection.fileno()

    def events(self) -> list[Event]:
        """What has happened to workers since the last call, without waiting."""
        found = []
        try:
            while self._connection.poll():
                found.append(self._connection.recv())
        except (EOFError, OSError) as error:
            raise WorkerError(f"the process that starts workers {self._server.end()}") from error
        return found

    def close(self) -> None:
        """Kills the workers, stopped ones too, and returns when none is left."""
        if not self._end():
            self._server.kill()  # the kernel then kills its workers
        self.abandon()

    def _end(self) -> bool:
        """True when the server has let go of the group, which it does when the last worker is gone."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        try:
            self._socket.shutdown(socket.SHUT_WR)
            while poll.poll(_ENDING_SECONDS * 1000):
                if not self._socket.recv(1 << 16):
                    return True
        except OSError:  # the server itself is gone
            return True
        return False

    def abandon(self) -> None:
        """Lets go without ending anything: for a child that was forked from the owner."""
        self._connection.close()
        self._socket.close()


class _Server:
    """The fork server of this process, as a child of it."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._control, theirs = socket.socketpair()
        # Threads of its numerical libraries would not survive its forks; workers use torch's.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        path = json.dumps([os.path.abspath(entry) for entry in sys.path])
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _MAIN, str(theirs.fileno()), path],
                stdin=subprocess.DEVNULL,
                stdout=2,
                pass_fds=[theirs.fileno()],
                env=environment,
                start_new_session=True,  # Ctrl-C in a terminal is for the driver alone
            )
        self.stop = weakref.finalize(self, _stop, self._control, self._process, self.owner)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_usable(self) -> bool:
        return self.stop.alive and self.owner == os.getpid() and self._process.poll() is None

    def new_group(self) -> WorkerGroup:
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [b"\0"], [theirs.fileno()])
        return WorkerGroup(ours, self)

    def end(self) -> str:
        """How the process ended, once its connections say that it did."""
        try:
            status = self._process.wait(_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            return "does not answer"
        return end_of(status)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def _stop(control: socket.socket, process: subprocess.Popen, owner: int) -> None:
    control.close()
    if os.getpid() == owner:
        process.kill()  # it may still be loading torch; the kernel kills its workers, if any are left
        process.wait()


class Launcher:
    """Starts the fork server when it is first needed, and keeps it: a second cluster of this process need not load
    torch again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server: _Server | None = None

    @property
    def pid(self) -> int | None:
        """The fork server's process id, if it runs."""
        server = self._server
        return server.pid if server is not None and server.is_usable else None

    def prepare(self) -> None:
        """Begins to load the fork server, and returns at once: the earlier, the less the first cluster waits."""
        self._ready()

    def new_group(self) -> WorkerGroup:
        return self._ready().new_group()

    def stop(self) -> None:
        """Ends the fork server and all its workers; the next group starts another. It also ends with this process, in
        whichever way."""
        with self._lock:
            if self._server is not None and self._server.owner == os.getpid():
                self._server.stop()
            self._server = None

    def _ready(self) -> _Server:
        with self._lock:
            if self._server is None or not self._server.is_usable:
                self._server = _Server()
            return self._server

    def forget(self) -> None:
        """Lets go of the server without ending it: for a child that was forked from its owner."""
        self._lock = threading.Lock()
        self._server = None  # its end closes this process's copy of the connection


LAUNCHER = Launcher()
os.register_at_fork(after_in_child=LAUNCHER.forget)
