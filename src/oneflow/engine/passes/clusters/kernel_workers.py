"""Processes beside a run in which kernels are compiled: torch's compiler stays out of the run's own memory, and what it
does out of its time."""

from __future__ import annotations

import os
import pickle
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import oneflow.version
from oneflow.engine.passes.clusters.kernel_store import KernelStore
from oneflow.engine.passes.clusters.kernels import Request

_PROGRAM = "import os, sys; os.nice(int(sys.argv[2])); from oneflow.engine.passes.clusters.inductor_kernels import main; main()"


@dataclass(frozen=True)
class Answer:
    """What became of a request: the store has its kernel, or it ``failed`` for this reason."""

    request: Request
    failed: str


class KernelWorkers:
    """Up to ``count`` processes, started when there is work for them and ended with the last of it. ``niceness`` 19
    leaves the processor to whoever else wants it."""

    def __init__(self, store: KernelStore, count: int, niceness: int) -> None:
        self._store, self._count, self._niceness = store, count, niceness
        self._waiting: deque[Request] = deque()
        self._workers: list[_Worker] = []

    def ask(self, requests: Sequence[Request]) -> None:
        """Has kernels compiled."""
        self._waiting.extend(requests)
        self._hand_out()

    @property
    def are_done(self) -> bool:
        return not self._waiting and not any(worker.request for worker in self._workers)

    def answers(self, seconds: float | None) -> list[Answer]:
        """What was answered since; waits for one so long, None for as long as it takes."""
        busy = [worker for worker in self._workers if worker.request is not None]
        ready, _, _ = select.select([worker.answers for worker in busy], [], [], seconds) if busy else ([], [], [])
        found = [worker.answer() for worker in busy if worker.answers in ready]
        self._hand_out()
        if self.are_done:
            self.close()
        return found

    def _hand_out(self) -> None:
        self._workers = [worker for worker in self._workers if worker.is_alive]
        idle = [worker for worker in self._workers if worker.request is None]
        while self._waiting and (idle or len(self._workers) < self._count):
            if not idle:
                self._workers.append(_Worker(self._store.folder, self._niceness))
                idle.append(self._workers[-1])
            idle.pop().send(self._waiting.popleft())

    def close(self) -> None:
        """Ends the processes, whatever they are at."""
        for worker in self._workers:
            worker.end()
        self._workers = []
        self._waiting.clear()


class _Worker:
    """One process. It ends when its input does, or with this object."""

    def __init__(self, folder: Path, niceness: int) -> None:
        self._scratch = tempfile.mkdtemp(prefix="oneflow-kernels-")
        package = str(Path(oneflow.version.__file__).parent.parent)
        environment = {
            # else it tries for seven seconds which vectors the processor has; it runs every kernel here before it is
            # taken anyway
            "TORCHINDUCTOR_VEC_ISA_OK": "1",
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                [package, *map(os.path.abspath, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))]
            ),
            "TORCHINDUCTOR_CACHE_DIR": self._scratch,
            "OMP_NUM_THREADS": "1",
        }
        for name in ("RANK", "WORLD_SIZE", "PYTHONWARNINGS"):
            environment.pop(name, None)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(folder), str(niceness)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd=self._scratch,  # modules of the run's own folder are none of its
            start_new_session=True,  # it is ended with the compiler that it has started
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self.answers = self._process.stdout
        self.request: Request | None = None
        self.is_alive = True
        self._end = weakref.finalize(self, _end, self._process, self._scratch, os.getpid())

    def send(self, request: Request) -> None:
        assert self._process.stdin is not None
        self.request = request
        try:
            pickle.dump(request, self._process.stdin)
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # its answer tells

    def answer(self) -> Answer:
        """What it has to say; waits for it."""
        assert self.request is not None
        line, request, self.request = self.answers.readline(), self.request, None
        if line:
            return Answer(request, line.decode().strip())
        self.is_alive = False
        self.end()
        return Answer(request, f"the compiling process has ended with exit code {self._process.returncode}")

    def end(self) -> None:
        self._end()


def _end(process: subprocess.Popen[bytes], scratch: str, owner: int) -> None:
    if os.getpid() != owner:  # a process that was forked has it not as its own
        return
    if process.poll() is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except BrokenPipeError:
                pass
    process.wait()
    shutil.rmtree(scratch, ignore_errors=True)
