"""Environment variables that turn off effects on the process; ``docs/process.md`` lists them."""

from __future__ import annotations

import os

TORCH_METHODS = "ONEFLOW_TORCH_METHODS"
IMPORT_HINTS = "ONEFLOW_IMPORT_HINTS"
PAUSE_GC = "ONEFLOW_PAUSE_GC"
DEFER_INTERRUPTS = "ONEFLOW_DEFER_INTERRUPTS"

_OFF = frozenset({"0", "false", "off", "no"})


def is_on(variable: str) -> bool:
    """Returns whether an effect is wanted: always, unless its variable is 0, false, off or no."""
    return os.environ.get(variable, "").strip().lower() not in _OFF
