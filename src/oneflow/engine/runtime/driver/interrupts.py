"""Ctrl-C while workers compute."""

from __future__ import annotations

# What is under signal's own functions: those of Python 3.11 take a tenth of a small step to see that a handler is no
# number.
import _signal  # type: ignore[import-not-found]
import os
import signal
import threading
from types import FrameType, TracebackType

_PATIENCE = 3.0  # seconds


class InterruptsHeld:
    """Ctrl-C waits until a block, with all blocks inside it, is through, so that a program that catches it finds its
    workers as they were after a whole step, and can save. A second one does not wait, nor does one whose block goes on
    for longer than some seconds. What the program has put in the place of Python's own handler stays. Blocks of other
    threads than the main one, which hears of no signal, are nothing to it."""

    def __init__(self) -> None:
        self._main = threading.main_thread().ident
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
