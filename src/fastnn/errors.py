"""The errors of FastNN, which are oneflow's: one line that says what came, what was expected and what to do."""

from __future__ import annotations

from oneflow.engine.core.errors import ArgumentError


class FlagError(ArgumentError):
    """A flag, or a value of one, that there is not."""

    is_located = False  # a command line has no line of a file
