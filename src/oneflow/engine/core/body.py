"""The job body that is running, as the rooms below the trace see it. An optimizer says here what it lowers: the trace
stands above the optimizers, as the graph that it makes holds one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from torch import fx

from oneflow.engine.core.errors import OutsideJobError


class Symbol:
    """A value inside a job body: the node of the graph that makes it. Blobs are the ones there are."""

    __slots__ = ("node",)

    def __init__(self, node: fx.Node) -> None:
        self.node = node


class Body(Protocol):
    """A job body while it runs."""

    def minimize(self, losses: Sequence[object], optimizer: object) -> None:
        """Makes ``optimizer`` the job's and the symbols ``losses`` what it lowers."""


_RUNNING: ContextVar[Body | None] = ContextVar("running body", default=None)


def running_body() -> Body | None:
    """The job body that is running, if one is."""
    return _RUNNING.get()


def require_body(what: str) -> Body:
    """The running body, or an error that says ``what`` belongs inside a job function."""
    body = _RUNNING.get()
    if body is None:
        raise OutsideJobError(
            f"{what} was called outside a job function. Blobs exist only while a job is traced: "
            "put the call into a function decorated with @flow.global_function"
        )
    return body


@contextmanager
def running(body: Body) -> Iterator[None]:
    """Makes ``body`` the running one."""
    token = _RUNNING.set(body)
    try:
        yield
    finally:
        _RUNNING.reset(token)
