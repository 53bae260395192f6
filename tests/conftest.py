"""Every test starts with an empty session and leaves nothing behind."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from warm_python import WARM

import oneflow as flow
from oneflow.engine.job.function import default_session
from oneflow.engine.job.machines import Machines
from oneflow.engine.runtime.launch.launch import LAUNCHER

# Set by the test runner and by torch.compile, not by the code under test.
_FOREIGN_VARIABLES = frozenset(["PYTEST_CURRENT_TEST", "TORCHINDUCTOR_CACHE_DIR"])


def pytest_configure() -> None:
    """A shell starts what it does not wait for deaf to Ctrl-C, and programs that tests start and interrupt would be
    deaf too."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """The collector of garbage need not look through all modules and tests again and again."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    WARM.close()


def _variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _FOREIGN_VARIABLES}


def _children() -> set[int]:
    """Process ids of the children of this process, however they were started; zombies have been forgotten by their
    owner.

    The processes that workers and programs are forked from are kept for the next test: without them each would load
    torch again.
    """
    tasks = Path("/proc/self/task")
    if not tasks.exists():
        return {child.pid for child in multiprocessing.active_children() if child.pid is not None}
    found: set[int] = set()
    for task in tasks.iterdir():
        try:
            found |= {int(pid) for pid in (task / "children").read_text().split()}
        except OSError:  # the thread has ended
            continue
    return found - {LAUNCHER.pid, WARM.pid}


def _threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.is_alive()}


@pytest.fixture(autouse=True)
def nothing_leaks() -> Iterator[None]:
    """Fails a test that leaves a thread, a child process or a changed environment variable behind."""
    threads, children, variables = _threads(), _children(), _variables()
    yield
    new_threads = _threads() - threads
    for thread in new_threads:
        thread.join(timeout=10)  # one that was told to end may need a moment
    leaked = sorted(thread.name for thread in new_threads if thread.is_alive())
    assert not leaked, f"threads left running: {leaked}"
    assert not _children() - children, f"child processes left running: {sorted(_children() - children)}"
    after = _variables()
    changed = sorted(name for name in variables.keys() | after.keys() if variables.get(name) != after.get(name))
    assert not changed, f"environment variables left changed: {changed}"


@pytest.fixture(autouse=True)
def clean_session(nothing_leaks: None) -> Iterator[None]:
    """An empty default session before the test, and none of its jobs after it; then nothing of it may be left."""
    flow.clear_default_session()
    yield
    flow.clear_default_session()
    session = default_session()  # the next one has the devices that were configured; other tests should not
    session.gpu_num, session.cpu_num, session.machines = None, None, Machines()
