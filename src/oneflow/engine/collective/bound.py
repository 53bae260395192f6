"""Between programs and collectives: the run-time objects behind the plain values of a program, and the groups that its
calls need."""

from __future__ import annotations

from functools import partial
from inspect import signature
from typing import Any

from oneflow.engine.collective.blocks import Sends, exchange
from oneflow.engine.collective.buckets import Bucket, RunningBucket
from oneflow.engine.collective.calls import NormOverParts
from oneflow.engine.collective.gathers import Gather, RunningGather
from oneflow.engine.collective.groups import Ranks
from oneflow.engine.collective.one_copy import OneCopy, RunningOneCopy

_RUNNING: dict[type, Any] = {Bucket: RunningBucket, Gather: RunningGather, OneCopy: RunningOneCopy}


class Bound:
    """What one executor has behind the values of its program: one bucket for each ``Bucket``, and so on, and what its
    exchanges have sent. Two executors of one program share none of it."""

    def __init__(self) -> None:
        self._sends = Sends()
        self._exchange = partial(exchange, sends=self._sends)
        self._made: dict[Any, Any] = {}

    def __call__(self, thing: Any) -> Any:
        """What code runs with in the place of a constant or function of a program; most are what they are."""
        if thing is exchange:
            return self._exchange
        running = _RUNNING.get(type(thing))
        if running is None:
            return thing
        if thing not in self._made:
            self._made[thing] = running(thing)
        return self._made[thing]

    def settle(self) -> None:
        """Waits until everything that was sent has arrived."""
        self._sends.settle()


def groups_in(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Ranks]:
    """The groups of ranks that a call of a rank's program is made together with."""
    if args and type(args[0]) in _RUNNING:
        return [args[0].ranks]
    if isinstance(kwargs.get("norms"), NormOverParts):
        return [ranks for ranks in kwargs["norms"].groups if ranks]
    if getattr(function, "__module__", None) != NormOverParts.__module__ or "ranks" not in (
        names := list(signature(function).parameters)
    ):
        return []
    return [args[names.index("ranks")]]
