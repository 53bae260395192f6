"""Ctrl-C while workers compute."""

from __future__ import annotations

# signal.signal of Python 3.11 converts its arguments to enums, which takes 10 % of a small step.
import _signal  # type: ignore[import-not-found]
import os
import signal
import threading
from types import FrameType, TracebackType

from oneflow.engine.core.switches import DEFER_INTERRUPTS, is_on

_PATIENCE = 3.0  # seconds


class InterruptsHeld:
    """Defers Ctrl-C to the end of the outermost block, so that a program that catches it finds its workers after a
    whole step and can save.

    A second Ctrl-C, or a block that takes longer than some seconds, raises at once. A handler that the program has
    installed stays. Only the main thread receives signals, so blocks of other threads do nothing.
    """

    def __init__(self) -> None:
        self._main = threading.main_thread().ident if is_on(DEFER_INTERRUPTS) else None
        self._depth = 0
        self._is_active = False
        self._timer: threading.Timer | None = None

    def __enter__(self) -> None:
        if threading.get_ident() != self._main:
            return
        self._depth += 1
        if self._depth == 1 and _signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            _signal.signal(signal.SIGINT, self._hear)
            self._is_active = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if threading.get_ident() != self._main:
            return
        self._depth -= 1
        if self._depth or not self._is_active:
            return
        self._is_active = False
        heard = self._timer is not None
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
        _signal.signal(signal.SIGINT, signal.default_int_handler)
        self._timer = None
        if heard and error is None:
            raise KeyboardInterrupt

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self._timer is not None:
            raise KeyboardInterrupt
        self._timer = threading.Timer(_PATIENCE, os.kill, (os.getpid(), signal.SIGINT))
        self._timer.daemon = True
        self._timer.start()
