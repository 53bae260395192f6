"""The processes of a machine's ranks, from start to end: the first that fails ends all of them, and so does a signal to
the launcher.

Each rank is a session of its own, so a signal reaches what it has started too; the system ends it when the launcher is
killed. The launcher sleeps until a process ends, a signal comes or a rank writes to stderr. What ranks write there
passes through it: it keeps the end, to say again, last of all, why the first rank failed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from oneflow.engine.core.errors import ArgumentError

_SIGNALS = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
_FIRST_SECONDS = 0.2  # in which others that failed by themselves are seen before all are ended
_GRACE_SECONDS = 5.0  # between asking a rank to end and ending it
_KEPT_BYTES = 1 << 16
_SHOWN_LINES = 40
_TRACEBACK = "Traceback (most recent call last)"
_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True)
class RankCommand:
    """What a rank runs, and the folder that its output goes to; None leaves it where the launcher's goes."""

    rank: int
    command: list[str]
    environment: dict[str, str]
    logs: Path | None


def watch(commands: Sequence[RankCommand]) -> int:
    """Runs the ranks until all have ended; 0 if every one ended well. Nothing of them is left in any case."""
    with _caught_signals() as caught:
        ranks: list[_Rank] = []
        try:
            for command in commands:
                ranks.append(_Rank(command))
            return _Watch(ranks, caught).run()
        finally:
            for rank in ranks:
                rank.end()


class _Rank:
    """A running rank. Its standard error comes through here unless it goes to a file."""

    def __init__(self, command: RankCommand) -> None:
        self.rank = command.rank
        self._logs = command.logs
        self._said = b""
        with contextlib.ExitStack() as files:
            out, err = self._files(files)
            try:
                self.process = subprocess.Popen(
                    command.command,
                    env=command.environment,
                    stdout=out,
                    stderr=subprocess.PIPE if err is None else err,
                    start_new_session=True,
                    preexec_fn=_end_with_parent(os.getpid()),
                )
            except OSError as error:
                raise ArgumentError(f"{command.command[0]!r} cannot be run: {error.strerror or error}") from None
        self.life = os.pidfd_open(self.process.pid)
        if self.process.stderr is not None:
            os.set_blocking(self.process.stderr.fileno(), False)

    def _files(self, opened: contextlib.ExitStack) -> tuple[BinaryIO | None, BinaryIO | None]:
        if self._logs is None:
            return None, None
        self._logs.mkdir(parents=True, exist_ok=True)
        return opened.enter_context(open(self._logs / "stdout", "wb")), opened.enter_context(
            open(self._logs / "stderr", "wb")
        )

    @property
    def name(self) -> str:
        return f"rank {self.rank} (process {self.process.pid} on {socket.gethostname()})"

    def relay(self) -> bool:
        """Passes on what the rank has written to stderr; False at the end of it."""
        if self.process.stderr is None:
            return False
        try:
            while chunk := os.read(self.process.stderr.fileno(), _KEPT_BYTES):
                self._said = (self._said + chunk)[-_KEPT_BYTES:]
                sys.stderr.buffer.write(chunk)
                sys.stderr.buffer.flush()
        except BlockingIOError:
            return True
        return False

    def signal(self, number: int) -> None:
        """To the rank and all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def end(self) -> None:
        """Ends whatever is left."""
        self.signal(signal.SIGKILL)
        self.process.wait()
        os.close(self.life)
        if self.process.stderr is not None:
            self.process.stderr.close()

    def last_words(self) -> str:
        """The end of what the rank has written to stderr: its last traceback, if there is one."""
        lines = self._written().decode(errors="replace").rstrip().splitlines()
        begins = [number for number, line in enumerate(lines) if _TRACEBACK in line]
        return "\n".join(lines[max(begins, default=0) :][-_SHOWN_LINES:])

    def _written(self) -> bytes:
        if self._logs is None:
            return self._said
        with open(self._logs / "stderr", "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _KEPT_BYTES))
            return file.read()


class _Watch:
    """The loop over all ranks. ``caught`` reads the numbers of signals that came to the launcher."""

    def __init__(self, ranks: list[_Rank], caught: int) -> None:
        self._running = {rank.life: rank for rank in ranks}
        self._errors = {rank.process.stderr.fileno(): rank for rank in ranks if rank.process.stderr is not None}
        self._caught = caught
        self._signal: int | None = None
        self._failed: list[_Rank] = []
        self._deadline: float | None = None  # when what still runs is told to end, or ended
        self._asked = False
        self._poll = select.poll()
        for fd in (caught, *self._running, *self._errors):
            self._poll.register(fd, select.POLLIN)

    def run(self) -> int:
        while self._running:
            for fd, _ in self._poll.poll(self._milliseconds()):
                self._attend(fd)
            if self._deadline is not None and time.monotonic() >= self._deadline:
                self._press()
        return self._verdict()

    def _milliseconds(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic()) * 1000

    def _attend(self, fd: int) -> None:
        if fd == self._caught:
            for number in os.read(fd, 64):
                if (
                    number in _SIGNALS
                ):  # others may have a handler of somebody else's in this process, as SIGCHLD has of torch's DataLoader
                    self._pass_on(number)
        elif fd in self._errors:
            if not self._errors[fd].relay():
                self._poll.unregister(fd)
                del self._errors[fd]
        elif fd in self._running:
            self._poll.unregister(fd)
            self._note_end(self._running.pop(fd))

    def _note_end(self, rank: _Rank) -> None:
        rank.relay()
        if rank.process.wait() and not self._asked and self._signal is None:
            self._failed.append(rank)
            if self._deadline is None:
                self._deadline = time.monotonic() + _FIRST_SECONDS

    def _pass_on(self, number: int) -> None:
        """The first signal goes to all ranks, which may end in their own way; after a second one they may not."""
        again, self._signal = self._signal is not None, number
        for rank in self._running.values():
            rank.signal(signal.SIGKILL if again else number)
        self._asked, self._deadline = True, time.monotonic() + _GRACE_SECONDS

    def _press(self) -> None:
        for rank in self._running.values():
            rank.signal(signal.SIGKILL if self._asked else signal.SIGTERM)
        self._asked, self._deadline = True, time.monotonic() + _GRACE_SECONDS

    def _verdict(self) -> int:
        if self._signal is not None and not self._failed:
            print(
                f"oneflow.distributed.launch: ended by {signal.Signals(self._signal).name}, and all ranks with it",
                file=sys.stderr,
            )
            return 128 + self._signal
        if not self._failed:
            return 0
        first = self._failed[0]
        code = first.process.returncode
        words = first.last_words()
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"failed with exit code {code}"
        also = (
            f" ({', '.join(f'rank {rank.rank}' for rank in self._failed[1:])} failed too)"
            if len(self._failed) > 1
            else ""
        )
        said = f"; the last it has written:\n{words}" if words else ""
        print(
            f"oneflow.distributed.launch: {first.name} {how}, so all ranks were ended{also}{said}",
            file=sys.stderr,
            flush=True,
        )
        return 128 - code if code < 0 else code


@contextlib.contextmanager
def _caught_signals() -> Iterator[int]:
    """A file from which the numbers of signals can be read; they do nothing else meanwhile."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    # what is ignored stays so: nohup, or a shell that has started this in the background
    before = {
        number: signal.signal(number, lambda *_: None)
        for number in _SIGNALS
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    waker = signal.set_wakeup_fd(writer)
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(waker)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)


def _end_with_parent(parent: int) -> Callable[[], None]:
    """What a new process does first: has the system end it with the launcher, which may have ended already."""

    def prepare() -> None:
        _LIBC.prctl(_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return prepare
