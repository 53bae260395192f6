"""Contenders in processes of their own, so that the memory and the threads of one are not in the way of another.

They are forked from a process that has imported torch, and done nothing else.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from functools import cache
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from typing import Any

import torch


class Apart:
    """``make(*arguments)`` is called in a new process of so many threads; what it gives is called there for every call
    of this."""

    def __init__(self, threads: int, make: Callable[..., Callable[[], object]], *arguments: Any) -> None:
        context = _context()
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, threads, make, arguments), daemon=True)
        self._process.start()
        theirs.close()  # so that the end of the process is the end of the pipe
        self._receive()

    def __call__(self) -> None:
        self.begin()
        self.end()

    def begin(self) -> None:
        """Has the call made without waiting for it."""
        self._pipe.send(True)

    def end(self) -> None:
        self._receive()

    def close(self) -> int:
        """Ends the process; by how many bytes its own memory grew at most since all was imported. Code of libraries,
        which is mapped from their files when it first runs and shared by all processes, does not count."""
        self._pipe.send(False)
        peak: int = self._receive()
        self._process.join()
        return peak

    def _receive(self) -> Any:
        try:
            return self._pipe.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            raise RuntimeError(
                f"a contender's process ended with code {self._process.exitcode}; what it wrote above says why"
            ) from None


@cache
def _context() -> ForkServerContext:
    context = get_context("forkserver")
    # What torch loads for the first trace counts in first calls; where times mean nothing, it is loaded once for all.
    context.set_forkserver_preload(["torch", "torch._dynamo"] if "--small" in sys.argv else ["torch"])
    return context


def _serve(
    pipe: Connection, threads: int, make: Callable[..., Callable[[], object]], arguments: tuple[Any, ...]
) -> None:
    torch.set_num_threads(threads)
    resident, shared = _pages()
    imported = resident - shared
    call = make(*arguments)
    pipe.send(None)
    while pipe.recv():
        call()
        pipe.send(None)
    pipe.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - _pages()[1] - imported)


def _pages() -> tuple[int, int]:
    """Bytes in memory, and how many of them are those of files."""
    with open("/proc/self/statm", encoding="ascii") as file:
        _, resident, shared, *_ = map(int, file.read().split())
    return resident * resource.getpagesize(), shared * resource.getpagesize()
