"""Signals that end a run, after the same iteration on all ranks."""

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
_AGREE_SECONDS = 0.5  # approximate time between two agreements
_log = logging.getLogger(__name__)


class StopSignal:
    """Records SIGINT and SIGTERM from construction until ``restore``. A second signal has its previous effect.

    Signals reach the ranks at different times, so the ranks agree every few iterations and stop at the same one.
    """

    def __init__(self) -> None:
        self._received: int | None = None
        self._before: dict[int, Any] = {}
        self._next = 0
        self._last_agreement: tuple[int, float] | None = None
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._record) for number in _SIGNALS}

    def _record(self, number: int, frame: FrameType | None) -> None:
        if self._received is not None:
            self.restore()
            signal.raise_signal(number)
            return
        self._received = number
        _log.warning(
            "%s: finishing the iteration, then saving. A second signal ends the run immediately",
            signal.Signals(number).name,
        )

    def is_agreed(self, iteration: int) -> bool:
        """Returns whether all ranks stop after this iteration. Every rank must call it in every iteration."""
        if dist.get_world_size() == 1:
            return self._received is not None
        if iteration < self._next:
            return False
        now = time.monotonic()
        last = self._last_agreement
        # The sums are equal on all ranks, so all choose the same next iteration.
        sums = flow.tensor([float(self._received or 0), now - last[1] if last else 0.0], dtype=flow.float64)
        flow.comm.all_reduce(sums)
        number, seconds = sums.tolist()
        per_iteration = seconds / dist.get_world_size() / (iteration - last[0] if last else 1)
        self._next = iteration + (min(1000, max(1, int(_AGREE_SECONDS / per_iteration))) if per_iteration > 0 else 1)
        self._last_agreement = (iteration, now)
        if number and self._received is None:
            self._received = signal.SIGTERM
        return bool(number)

    def end(self) -> NoReturn:
        """Raises KeyboardInterrupt for SIGINT; exits with the status of SIGTERM otherwise."""
        if self._received == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(128 + signal.SIGTERM)

    def restore(self) -> None:
        """Restores the previous signal handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
