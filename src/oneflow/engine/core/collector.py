"""Pause the garbage collector while many long-lived objects are created."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from oneflow.engine.core.switches import PAUSE_GC, is_on


@contextmanager
def paused() -> Iterator[None]:
    """Disables automatic collection inside, for imports and traces.

    Otherwise the collector scans all objects of the process each time their number has grown by 25 %.
    """
    was_enabled = gc.isenabled()
    if not (was_enabled and is_on(PAUSE_GC)):
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
