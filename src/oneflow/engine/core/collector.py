"""Python's collector of garbage, kept from looking for it where there is none."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_MANY_MODULES = 100


@contextmanager
def paused() -> Iterator[None]:
    """For work that makes many objects which stay, such as graphs and loaded modules. Each time their number has grown
    by a quarter, the collector would look through all objects of the process.

    Where many modules were loaded meanwhile, nearly all of what was made is theirs. It then counts as old at once; else
    the collector would look through all of it three times more, once per generation.
    """
    was_enabled, modules = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if len(sys.modules) - modules > _MANY_MODULES:
                _count_as_old()
            gc.enable()


def collect_young() -> None:
    """Frees what was made while the collector was paused and is garbage already: it would count as old, and be looked
    for late or never."""
    gc.collect(0)


def _count_as_old() -> None:
    """Moves all objects into the oldest generation, unseen. What a program has frozen on purpose is left alone."""
    if not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()
