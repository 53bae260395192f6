"""One call at least of every public name of OneFlow 0.9 that this package has, one file per namespace.

A file has ``CALLS``: for each full name, such as ``oneflow.nn.Linear``, a function that calls it and asserts what it
gives: OneFlow's meaning where that differs from torch's, a formula or numpy for what is written here, and for names
that are torch's own that the call works.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules


def every_call() -> dict[str, Callable[[], None]]:
    """The calls of all files."""
    found: dict[str, Callable[[], None]] = {}
    for module in iter_modules(__path__):
        calls = import_module(f"{__name__}.{module.name}").CALLS
        assert not found.keys() & calls.keys(), f"{module.name} repeats {sorted(found.keys() & calls.keys())}"
        found.update(calls)
    return found
