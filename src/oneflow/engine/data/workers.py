"""Threads for a loader. They end when it is closed, when it is forgotten, and with the program, without finishing what
is queued."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

_Task = tuple["Future[None]", Callable[..., None], tuple[Any, ...]]
_Tasks = SimpleQueue["_Task | None"]


class Workers:
    """``count`` threads that do tasks in turn. A long task looks at ``stopping`` between its steps and ends when it is
    set.

    An executor of ``concurrent.futures`` would do, but the interpreter waits for all its tasks before it lets anyone
    stop them. Daemon threads are not waited for; the finalizer, which also runs at exit, stops them before the
    interpreter goes.
    """

    def __init__(self, count: int, name: str) -> None:
        self.stopping = threading.Event()
        self._tasks: _Tasks = SimpleQueue()
        self._threads = [
            threading.Thread(target=_work, args=(self._tasks, self.stopping), name=f"{name}-{number}", daemon=True)
            for number in range(count)
        ]
        self._stop = weakref.finalize(self, _stop, self._tasks, self.stopping, self._threads)
        for thread in self._threads:
            thread.start()

    def submit(self, function: Callable[..., None], *arguments: Any) -> Future[None]:
        future: Future[None] = Future()
        self._tasks.put((future, function, arguments))
        return future

    def close(self) -> None:
        """Ends the threads and waits for them; tasks that none has begun are cancelled."""
        self._stop()
        for thread in self._threads:
            thread.join()


def _work(tasks: _Tasks, stopping: threading.Event) -> None:
    while (task := tasks.get()) is not None:
        future, function, arguments = task
        if stopping.is_set():
            future.cancel()
        if future.set_running_or_notify_cancel():
            try:
                function(*arguments)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(None)
        del task, future, function, arguments  # a thread that waits keeps no loader


def _stop(tasks: _Tasks, stopping: threading.Event, threads: list[threading.Thread]) -> None:
    stopping.set()
    for _ in threads:
        tasks.put(None)
    if (
        not threading.main_thread().is_alive()
    ):  # at exit; elsewhere it may be the collector that calls, in one of the threads
        for thread in threads:
            thread.join()
