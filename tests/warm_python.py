"""An interpreter that has torch loaded already, for tests that run programs: loading it is most of what a short program
does.

``WARM.command()`` stands for ``sys.executable``. It runs a program in a fork of one process, with its own environment,
folder, standard streams and network namespace, and ends as the program ends. Programs that are killed, that are
measured, or whose hashes should be random take ``sys.executable``.
"""

from __future__ import annotations

import builtins
import ctypes
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

_CLIENT = """
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect(sys.argv[1])
order = json.dumps([sys.argv[2:], os.getcwd(), dict(os.environ)]).encode()
with open("/proc/self/ns/net") as network:
    socket.send_fds(server, [len(order).to_bytes(8, "big")], [0, 1, 2, network.fileno()])
server.sendall(order)
status = int.from_bytes(server.recv(8), "big", signed=True)
sys.exit(status) if status >= 0 else os.kill(os.getpid(), -status)
"""


class WarmPython:
    """The process that programs are forked from; it is started by the first of them."""

    def __init__(self) -> None:
        self.pid: int | None = None

    def command(self) -> list[str]:
        """What to put before a script and its arguments, ``-m`` and a module, or ``-c`` and a program."""
        return [sys.executable, "-IS", "-c", _CLIENT, self._address]

    def close(self) -> None:
        """Ends the process, if there is one."""
        if self.pid is not None:
            self._process.communicate()  # it sees the end of its input
            self._folder.cleanup()

    @cached_property
    def _folder(self) -> tempfile.TemporaryDirectory[str]:
        return tempfile.TemporaryDirectory(prefix="warm-")

    @cached_property
    def _address(self) -> str:
        address = str(Path(self._folder.name) / "socket")
        self._process = subprocess.Popen(
            [sys.executable, __file__, address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": ""},
        )
        self.pid = self._process.pid
        assert self._process.stdout is not None
        self._process.stdout.readline()  # it listens
        return address


WARM = WarmPython()


def _next_program(listener: socket.socket) -> Callable[[], None]:
    """Forks a process for each command; returns there."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        ready, _, _ = select.select([listener, 0], [], [])
        if 0 in ready:
            os._exit(0)
        connection, _ = listener.accept()
        if os.fork():
            connection.close()
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        listener.close()
        order, streams = _received(connection)
        program = os.fork()
        if program:
            _watch(connection, program)
        connection.close()
        return _become(order, streams)


def _received(connection: socket.socket) -> tuple[Any, list[int]]:
    size, streams, _, _ = socket.recv_fds(connection, 8, 4)
    with connection.makefile("rb") as file:
        return json.loads(file.read(int.from_bytes(size, "big"))), streams


def _watch(connection: socket.socket, program: int) -> None:
    """Tells how the program ended, and ends it when nobody waits for it any more."""
    ended = os.pidfd_open(program)
    ready, _, _ = select.select([connection, ended], [], [])
    if connection in ready:
        os.kill(program, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    connection.send(status.to_bytes(8, "big", signed=True))
    os._exit(0)


def _become(order: Any, streams: list[int]) -> Callable[[], None]:
    """Makes this process's surroundings those of the command; gives what is to be run."""
    arguments, folder, environment = order
    *streams, network = streams
    _enter(network)
    for place, stream in enumerate(streams):
        os.dup2(stream, place)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    kind, *others = arguments
    beside = str(Path(kind).resolve().parent) if kind not in ("-c", "-m") else folder
    sys.path[:] = [beside, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)), *sys.path[1:]]
    if kind == "-m":
        sys.argv = others
        return lambda: runpy.run_module(others[0], run_name="__main__", alter_sys=True) and None
    sys.argv = ["-c", *others[1:]] if kind == "-c" else arguments
    text, name = (others[0], "<string>") if kind == "-c" else (Path(kind).read_text(encoding="utf-8"), kind)
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=name, __builtins__=builtins)
    sys.modules["__main__"] = main
    return lambda: exec(compile(text, name, "exec", dont_inherit=True), main.__dict__)


def _enter(network: int) -> None:
    """Goes into a network namespace; none but root can, and nobody else has another."""
    if not os.path.samestat(os.fstat(network), os.stat("/proc/self/ns/net")) and ctypes.CDLL(None).setns(network, 0):
        raise OSError("the network namespace of a program could not be entered")
    os.close(network)


def _main() -> None:
    import gc

    import torch  # noqa: F401

    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(sys.argv[1])
        listener.listen()
        print("listening", flush=True)
        program = _next_program(listener)
    try:
        program()
    except Exception as error:
        kept = error.__traceback__
        while kept is not None and kept.tb_frame.f_code.co_filename == __file__:
            kept = kept.tb_next
        sys.excepthook(type(error), error.with_traceback(kept), kept)
        sys.exit(1)


if __name__ == "__main__":
    _main()
