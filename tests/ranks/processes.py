"""Waiting for processes, and looking at them, without knowing how they were started."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from pathlib import Path


def until(condition: Callable[[], object], seconds: float = 60.0) -> bool:
    """Whether the condition becomes true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def is_alive(pid: int) -> bool:
    """Whether a process is there and not only waiting to be reaped."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def children_of(pid: int) -> list[int]:
    """The processes that a process has started, in any of its threads."""
    tasks = Path(f"/proc/{pid}/task")
    return (
        [int(child) for task in tasks.iterdir() for child in (task / "children").read_text().split()]
        if tasks.exists()
        else []
    )


def are_gone(pids: list[int]) -> bool:
    return not any(is_alive(pid) for pid in pids)


def open_segments() -> set[str]:
    """The anonymous shared memory that this process has open or mapped. What an error's frames hold in a cycle is none
    of it."""
    gc.collect()
    found = {line.split()[4] for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:oneflow" in line}
    for entry in Path("/proc/self/fd").iterdir():
        try:
            if "memfd:oneflow" in os.readlink(entry):
                found.add(entry.name)
        except FileNotFoundError:  # the listing's own
            continue
    return found
