"""Python's collector of garbage, kept from looking for it where there is none."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """For work that makes many objects which stay, such as graphs and loaded modules. Each time their number has grown by a quarter, the
    collector would look through all objects of the process."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
