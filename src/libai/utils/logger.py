"""The logs of a run: coloured lines on the console of rank 0, and a plain file for every rank."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Hashable
from typing import Any

_SHORT_NAME = "lb"
_TIME = "%m/%d %H:%M:%S"
_GREEN, _YELLOW, _RED, _PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[31;4m", "\x1b[0m"


@functools.cache
def setup_logger(
    output: str | None = None,
    distributed_rank: int = 0,
    *,
    color: bool = True,
    name: str = "libai",
    abbrev_name: str | None = None,
) -> logging.Logger:
    """The logger ``name``, with a console on rank 0 and, where ``output`` is given, a file for each rank.

    ``output`` is a folder, in which the file is ``log.txt``, or a file that ends in .txt or .log; ranks but the first
    add ``.rank<k>``. Files are appended to. The console shows ``name`` as ``abbrev_name``, by default "lb" for "libai".
    Called again with the same arguments it gives the same logger; called with others it replaces what it had set up.
    """
    logger = logging.getLogger(name)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    for old in [handler for handler in logger.handlers if getattr(handler, "of_libai", False)]:
        logger.removeHandler(old)
        old.close()
    short = abbrev_name if abbrev_name is not None else _SHORT_NAME if name == "libai" else name
    if distributed_rank == 0:
        console: logging.Handler = logging.StreamHandler(stream=sys.stdout)
        console.setFormatter(_Console(name, short, color and _takes_color(sys.stdout)))
        _add(logger, console)
    if output is not None:
        file = logging.FileHandler(_log_file(output, distributed_rank), encoding="utf-8")
        file.setFormatter(logging.Formatter("[%(asctime)s] %(name)s %(levelname)s: %(message)s", datefmt=_TIME))
        _add(logger, file)
        atexit.register(file.close)
    return logger


def log_first_n(
    lvl: int, msg: str, n: int = 1, *, name: str | None = None, key: str | tuple[str, ...] = "caller"
) -> None:
    """Logs only the first ``n`` times. What counts as the same is said by ``key``: the "caller"'s line, the "message",
    or both."""
    keys = (key,) if isinstance(key, str) else key
    caller, module = _caller()
    identity: tuple[Hashable, ...] = ((caller,) if "caller" in keys else ()) + ((msg,) if "message" in keys else ())
    _COUNTS[identity] += 1
    if _COUNTS[identity] <= n:
        logging.getLogger(name or module).log(lvl, msg)


def log_every_n(lvl: int, msg: str, n: int = 1, *, name: str | None = None) -> None:
    """Logs the first of every ``n`` calls from a line."""
    caller, module = _caller()
    _COUNTS[caller] += 1
    if n == 1 or _COUNTS[caller] % n == 1:
        logging.getLogger(name or module).log(lvl, msg)


def log_every_n_seconds(lvl: int, msg: str, n: int = 1, *, name: str | None = None) -> None:
    """Logs at most every ``n`` seconds from a line."""
    caller, module = _caller()
    now = time.monotonic()
    if caller not in _TIMES or now - _TIMES[caller] >= n:
        logging.getLogger(name or module).log(lvl, msg)
        _TIMES[caller] = now


# How often, and when last, a line of code has logged: it is the interpreter's, as the loggers themselves are.
_COUNTS: Counter[Hashable] = Counter()
_TIMES: dict[Hashable, float] = {}


class _Console(logging.Formatter):
    """``[time lb.module]: message`` with a green prefix, and a word in red before what is worse than information."""

    def __init__(self, name: str, short: str, color: bool) -> None:
        green, plain = (_GREEN, _PLAIN) if color else ("", "")
        super().__init__(f"{green}[%(asctime)s %(shortname)s]: {plain}%(message)s", datefmt=_TIME)
        self._name, self._short, self._color = name, short, color

    def format(self, record: logging.LogRecord) -> str:
        record.shortname = record.name.replace(self._name, self._short, 1) if self._short else record.name
        text = super().format(record)
        if record.levelno < logging.WARNING:
            return text
        word = "WARNING" if record.levelno == logging.WARNING else "ERROR"
        if self._color:
            word = f"{_YELLOW if record.levelno == logging.WARNING else _RED}{word}{_PLAIN}"
        return f"{word} {text}"


def _add(logger: logging.Logger, handler: Any) -> None:
    handler.setLevel(logging.DEBUG)
    handler.of_libai = True
    logger.addHandler(handler)


def _log_file(output: str, rank: int) -> str:
    path = output if output.endswith((".txt", ".log")) else os.path.join(output, "log.txt")
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    return path if rank == 0 else f"{path}.rank{rank}"


def _takes_color(stream: Any) -> bool:
    return bool(getattr(stream, "isatty", lambda: False)()) and "NO_COLOR" not in os.environ


def _caller() -> tuple[tuple[str, int, str], str]:
    """File, line and function of the first frame outside this module, and the name of its module."""
    frame = sys._getframe(2)
    module = frame.f_globals.get("__name__", "libai")
    return (frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name), "libai" if module == "__main__" else module
