"""What went wrong in a worker, told in one error; and which of several troubles came first."""

from __future__ import annotations

import enum
import time
import traceback
from typing import NamedTuple

import torch
import torch.distributed as dist

from oneflow.engine.core import errors
from oneflow.engine.core.errors import OneFlowError, PeerError, WorkerError

GRACE_SECONDS = 0.5  # for the cause to show up after its consequences
_FRAMES_SHOWN = 3
_COLLECTIVE_MARKS = ("gloo", "NCCL", "Connection closed by peer", "Connection reset by peer", "ProcessGroup")


class Weight(enum.IntEnum):
    """How likely it is that a trouble is the cause of the others; less is likelier."""

    CAUSE = 0  # a process ended or was stopped, or its own code raised
    LOST = 1  # a connection broke: perhaps the process has died, which is better said
    CONSEQUENCE = 2  # a collective failed, as it does when any other rank does


class Report(NamedTuple):
    """An exception of a worker, as text."""

    kind: str
    message: str
    reason: str
    trace: str
    is_ours: bool
    is_collective: bool


def report(error: BaseException) -> Report:
    kind, message = type(error).__name__, str(error)
    is_ours = isinstance(error, OneFlowError) and getattr(errors, kind, None) is type(error)
    reason = error.reason if isinstance(error, OneFlowError) else message
    trace = "".join(traceback.format_tb(error.__traceback__)[-_FRAMES_SHOWN:])
    return Report(kind, message, reason, trace, is_ours, _is_collective(error))


def _is_collective(error: BaseException | None) -> bool:
    """Whether a collective failed, also where the error says so in words of its own."""
    while error is not None:
        if isinstance(error, (dist.DistError, PeerError)):
            return True
        if type(error) is RuntimeError and any(mark in str(error) for mark in _COLLECTIVE_MARKS):
            return True
        error = error.__cause__
    return False


class Trouble(NamedTuple):
    who: str
    text: str
    weight: Weight
    report: Report | None = None

    def error(self, what: str) -> OneFlowError:
        """The error that the user gets: an error of this package keeps its class and the user's line."""
        if self.report is None or not self.report.is_ours:
            return WorkerError(f"{what}: {self.who} {self.text}")
        message, reason = self.report.message, self.report.reason
        line = message[: len(message) - len(reason)]
        return getattr(errors, self.report.kind)(f"{line}{what}: {self.who}: {reason}")


def raised(who: str, found: Report) -> Trouble:
    """The trouble of a worker whose handler raised."""
    cause = (
        "ran out of memory"
        if found.kind in (MemoryError.__name__, torch.OutOfMemoryError.__name__)
        else f"raised {found.kind}"
    )
    weight = Weight.CONSEQUENCE if found.is_collective else Weight.CAUSE
    return Trouble(who, f"{cause}: {found.message}\n{found.trace.rstrip()}", weight, found)


class Troubles:
    """All that has gone wrong; the first cause counts, else, after a moment, the likeliest."""

    def __init__(self) -> None:
        self._found: list[Trouble] = []
        self._since = 0.0

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, trouble: Trouble) -> None:
        if not self._found:
            self._since = time.monotonic()
        self._found.append(trouble)

    def verdict(self) -> Trouble | None:
        """The trouble to be told; None as long as a likelier cause may still show up."""
        if not self._found:
            return None
        likeliest = min(self._found, key=lambda trouble: trouble.weight)
        is_late = time.monotonic() - self._since > GRACE_SECONDS
        return likeliest if is_late or likeliest.weight is Weight.CAUSE else None
