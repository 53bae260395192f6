"""The event file behind ``flow.summary``: one writer per process, opened on request, closed at exit."""

from __future__ import annotations

import atexit
from collections import Counter
from pathlib import Path
from typing import Any

from oneflow.engine.core.errors import JobError
from oneflow.engine.core.optional import optional_package


def require_tensorboard() -> None:
    """Raises an error that says how to install tensorboard where it is missing."""
    optional_package("tensorboard", "tensorboard", "flow.summary")


class Events:
    """Holds the writer that ``flow.summary`` writes with, and how often each tag was written."""

    def __init__(self) -> None:
        self._writer: Any = None
        self._calls: Counter[str] = Counter()

    def open(self, logdir: str | Path) -> None:
        """Starts a new event file in ``logdir``; one that was open is closed."""
        require_tensorboard()
        from torch.utils.tensorboard import SummaryWriter  # slow to import, and few programs write summaries

        self.close()
        self._writer = SummaryWriter(str(logdir))
        atexit.register(self.close)

    def writer(self, what: str) -> Any:
        """The open writer, or an error that says how ``what`` gets one."""
        if self._writer is None:
            raise JobError(f"{what}: there is no writer; call flow.summary.create_summary_writer(logdir) first")
        return self._writer

    def step(self, tag: str, step: int | None) -> int:
        """``step``, or without one how often ``tag`` was written before."""
        self._calls[tag] += 1
        return self._calls[tag] - 1 if step is None else step

    def flush(self) -> None:
        self.writer("flow.summary.flush_summary_writer").flush()

    def close(self) -> None:
        """Writes what is pending and lets go of the file; nothing happens when none is open."""
        atexit.unregister(self.close)
        self._calls.clear()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
