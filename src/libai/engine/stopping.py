"""Signals that ask a run to end, and the iteration at which all ranks do."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any, NoReturn

import oneflow as flow
from libai.utils import distributed as dist

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_ASK_SECONDS = 0.5  # about so often the ranks ask each other
_log = logging.getLogger(__name__)


class StopSignal:
    """Takes note of SIGINT and SIGTERM from when it is made until ``restore``. A second one does what the first would
    have done without it.

    Signals reach ranks at different moments, so these ask each other, every few iterations, and stop at the same one.
    """

    def __init__(self) -> None:
        self._received: int | None = None
        self._before: dict[int, Any] = {}
        self._next = 0
        self._asked: tuple[int, float] | None = None
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._received is not None:
            self.restore()
            signal.raise_signal(number)
            return
        self._received = number
        _log.warning("%s: finishing the iteration, then saving. A second one ends at once", signal.Signals(number).name)

    def is_agreed(self, iteration: int) -> bool:
        """Whether all ranks stop after this iteration. Each calls it in each iteration."""
        if dist.get_world_size() == 1:
            return self._received is not None
        if iteration < self._next:
            return False
        now = time.monotonic()
        # Every rank comes to the same numbers, and so asks again at the same iteration.
        told = flow.tensor(
            [float(self._received or 0), now - self._asked[1] if self._asked else 0.0], dtype=flow.float64
        )
        flow.comm.all_reduce(told)
        number, seconds = told.tolist()
        done = iteration - self._asked[0] if self._asked else 1
        each = seconds / dist.get_world_size() / done
        self._next = iteration + (min(1000, max(1, int(_ASK_SECONDS / each))) if each > 0 else 1)
        self._asked = (iteration, now)
        if number and self._received is None:
            self._received = signal.SIGTERM
        return bool(number)

    def end(self) -> NoReturn:
        """Ends as the signal would have: by KeyboardInterrupt, or with the status of a process that SIGTERM has
        ended."""
        if self._received == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(128 + signal.SIGTERM)

    def restore(self) -> None:
        """Leaves the signals to whom they belonged before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
