"""Tracebacks that end at the user's line: what is between it and the error is ours, and the message says what went
wrong there.

``ONEFLOW_TRACEBACK=full`` leaves every frame in its place.
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import ParamSpec, TypeVar

from oneflow.engine.core.errors import OneFlowError, is_our_file, is_users_file

_P = ParamSpec("_P")
_R = TypeVar("_R")
_LIBRARIES = tuple(
    {path + os.sep for path in map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")) if path}
)


def entry(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorator of a function that users call: errors that leave it have no frames of ours."""

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            trim(error)
            raise

    return call


def trim(error: BaseException) -> None:
    """Leaves our frames out of the traceback of an error and of those that it came from; for ``except``, before a bare
    ``raise``.

    Errors of our own keep the frames of the user's files alone. Others, such as one that the body of a job raises, lose
    the frames of our packages; but those that our code has not raised on purpose keep all, since somebody will have to
    look into them.
    """
    if os.environ.get("ONEFLOW_TRACEBACK") == "full":
        return
    if not isinstance(error, OneFlowError):
        if not _is_the_users(error):
            return
        left = _theirs_and_libraries
    else:
        left = _theirs
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        found.__traceback__ = _linked(left(_entries(found.__traceback__)))
        found = found.__cause__ or found.__context__


def _entries(traceback: TracebackType | None) -> list[TracebackType]:
    found = []
    while traceback is not None:
        found.append(traceback)
        traceback = traceback.tb_next
    return found


def _linked(entries: list[TracebackType]) -> TracebackType | None:
    made: TracebackType | None = None
    for entry in reversed(entries):
        made = TracebackType(made, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return made


def _name(entry: TracebackType) -> str:
    return entry.tb_frame.f_code.co_filename


def _is_of_program(entry: TracebackType) -> bool:
    """Whether a frame is of the user's program, and not of a library or of code that one has made."""
    name = _name(entry)
    is_made = name.startswith("<") and entry.tb_frame.f_globals.get("__name__") != "__main__"
    return is_users_file(name) and not is_made and not name.startswith(_LIBRARIES)


def _is_the_users(error: BaseException) -> bool:
    """Whether the innermost frame that is ours or of the user's program is the latter; libraries that either calls do
    not count."""
    found = [
        is_our_file(_name(entry))
        for entry in _entries(error.__traceback__)
        if is_our_file(_name(entry)) or _is_of_program(entry)
    ]
    return bool(found) and not found[-1]


def _theirs(entries: list[TracebackType]) -> list[TracebackType]:
    """The frames of the user's files."""
    return [entry for entry in entries if is_users_file(_name(entry))]


def _theirs_and_libraries(entries: list[TracebackType]) -> list[TracebackType]:
    """The frames of the user's program, and those of libraries that it has called, but not those through which we have
    called it."""
    left, through = [], False
    for entry in entries:
        through = is_our_file(_name(entry)) or (through and not _is_of_program(entry))
        if not through:
            left.append(entry)
    return left
