"""The errors a user can meet, and how they find the user's own line.

Every class also derives from the built-in exception that programs of the job-function era catch
(``AssertionError`` for bad arguments, ``NotImplementedError`` for an op outside a job, ...).
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import os
import re
import sys
import threading
from collections.abc import Iterable
from concurrent import futures
from pathlib import Path
from types import FrameType

import torch

_PACKAGE = str(Path(__file__).absolute().parents[2])
# This package and those that are built on it, and the programs that are made of jobs.
_OURS = (
    *(os.path.join(os.path.dirname(_PACKAGE), name) + os.sep for name in ("oneflow", "flowvision", "libai", "fastnn")),
    "<program of job ",
)
# Code that stands between the user's line and ours: our own, and what it calls that calls it back.
_NOT_THE_USERS = (
    *_OURS,
    os.path.dirname(os.path.abspath(torch.__file__)) + os.sep,
    os.path.dirname(os.path.abspath(futures.__file__)) + os.sep,
    contextlib.__file__,
    functools.__file__,
    threading.__file__,
    "<frozen ",
)
UNKNOWN_LINE = "<unknown>"
_LINE = re.compile(r"[^\n:]+:\d+: ")


class OneFlowError(Exception):
    """Base of every error this package raises on purpose.

    Its message begins with the user's ``file:line``: the one that the raiser gives, as for an op that failed later than
    it was written, else that of the call that failed. ``reason`` is the message without it.
    """

    is_located = True

    def __init__(self, message: str) -> None:
        given = _LINE.match(message)
        self.reason = message[given.end() :] if given else message
        if given is None and self.is_located and (line := user_line()) != UNKNOWN_LINE:
            message = f"{line}: {message}"
        super().__init__(message)


class ArgumentError(OneFlowError, AssertionError, ValueError):
    """A value, shape, structure or count that the called function does not take."""


class DTypeError(OneFlowError, AssertionError, TypeError):
    """A dtype that does not fit; nothing is cast silently."""


class KeywordError(OneFlowError, TypeError):
    """A keyword that the called function does not take, or an argument that it was given twice."""


class NameError_(OneFlowError, AssertionError, AttributeError):
    """An unknown or doubly used name."""


class AbsentNameError(OneFlowError, AttributeError, NotImplementedError):
    """A name that OneFlow has and this package has not."""


class JobError(OneFlowError, AssertionError):
    """A job function that cannot be made into a graph, or is used in a way it does not allow."""


class GraphError(OneFlowError, RuntimeError, AssertionError):
    """A graph of modules that cannot be built, or is used in a way it does not allow."""


class OutsideJobError(OneFlowError, NotImplementedError):
    """An op or a variable asked for where no job is being traced."""


class UnsupportedError(OneFlowError, NotImplementedError):
    """Something this version does not do, said before any work is done."""


class RunError(OneFlowError, RuntimeError):
    """A job that failed while it ran; names job, op and the user's line."""

    is_located = False


class WorkerError(RunError):
    """A job that failed because of a worker process, or of the way to it; names job and step, rank and host."""


class GlobalTensorError(OneFlowError, RuntimeError):
    """A global tensor that cannot be made, laid out or mixed with others as asked; found from what every rank knows, so
    all of them raise."""


class PeerError(WorkerError):
    """Another rank that this one waited for has ended, is stopped, or did not come in time; names the ranks and their
    hosts."""


class OrderError(RunError):
    """Ranks that should meet call different operations; names the ranks, their calls and the lines of these."""


class LocalTensorError(OneFlowError, RuntimeError, AttributeError):
    """An attribute of global tensors was read from a local one. ``hasattr`` of a local tensor is False."""


class NoDeviceError(OneFlowError, RuntimeError, AssertionError):
    """A device that this machine, or this build of torch, has not."""


class CheckpointError(OneFlowError, AssertionError, ValueError):
    """A checkpoint directory that cannot be written or read as asked."""


class DataError(OneFlowError, ValueError):
    """A data file that is missing, broken or does not hold what was asked for; names file, record and byte."""

    is_located = False


def is_users_file(name: str) -> bool:
    """Whether code of this file is neither ours nor torch's."""
    return not name.startswith(_NOT_THE_USERS)


def is_our_file(name: str) -> bool:
    """Whether code of this file is ours."""
    return name.startswith(_OURS)


def user_line() -> str:
    """``file:line`` of the innermost frame that is neither ours nor torch's: where the user called us."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_users_file(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return UNKNOWN_LINE
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def nearest(name: str, known: Iterable[str]) -> str:
    """`` Did you mean 'x'?`` for a mistyped name, or nothing when no known name is close."""
    match = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean {match[0]!r}?" if match else ""
