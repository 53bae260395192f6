"""Ranks that meet must call the same operations in the same order. When they do not, they are told so.

Each rank counts its calls per group of ranks. With ``ONEFLOW_CHECK_ORDER=1`` the members of a group compare what they
call before each call, through the store of the world: an error on all of them at once, at the price of a round trip per
call. Without it they compare when a wait was in vain: each tells the others at which call it stands, so the error of a
time-out is that of the real cause. Members of several hosts also compare calls of a kind that they have not made
before: gloo ends a process that is sent more than it expects.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any

import torch
import torch.distributed as dist

from oneflow.engine.collective.groups import Ranks
from oneflow.engine.collective.peers import is_running, meeting, processes_here
from oneflow.engine.core.errors import GlobalTensorError, OrderError, PeerError, user_line

_VARIABLE = "ONEFLOW_CHECK_ORDER"
_TELLING_SECONDS = 2.0  # within which others, whose time is over too, tell where they stand
_LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class Call:
    """The ``number``-th meeting of ``ranks``, as one of them sees it."""

    ranks: Ranks
    number: int
    name: str
    details: str
    line: str

    @property
    def what(self) -> str:
        """What all members must agree on."""
        return f"{self.name}({self.details})"

    def __str__(self) -> str:
        return f"call {self.number} of ranks {list(self.ranks)}, {self.what} at {self.line}"


class _Calls:
    """The calls of this rank so far, by group."""

    def __init__(self) -> None:
        self.numbers: dict[Ranks, int] = {}
        self._made: set[tuple[Ranks, str]] = set()

    def is_new(self, ranks: Ranks, what: str) -> bool:
        """Whether a call of this kind is the first of these ranks. The others, who made the same calls so far, say the
        same."""
        if (ranks, what) in self._made:
            return False
        self._made.add((ranks, what))
        return True

    def count(self, ranks: Ranks) -> int:
        self.numbers[ranks] = number = self.numbers.get(ranks, 0) + 1
        return number


class meet(contextlib.AbstractContextManager[None]):
    """Around an operation that ``ranks`` do together; all of them come here. ``arguments`` are what they must agree on:
    of a tensor its dtype and shape count. Costs about a microsecond unless calls are checked."""

    __slots__ = ("_arguments", "_name", "_number", "_ranks")

    def __init__(self, name: str, ranks: Ranks, *arguments: Any) -> None:
        self._name, self._ranks, self._arguments = name, ranks, arguments

    def __enter__(self) -> None:
        if dist.group.WORLD is None:
            raise GlobalTensorError(
                f"{self._name} needs ranks {list(self._ranks)[:8]}, and in a planned world there is this process "
                f"alone: plan the graph with flow.plan"
            )
        calls = _calls(dist.group.WORLD)
        self._number = calls.count(self._ranks)
        if is_checked() or (
            are_apart(self._ranks) and calls.is_new(self._ranks, f"{self._name}({described(self._arguments)})")
        ):
            try:
                with meeting(self._ranks):
                    _compare(self._call())
            except PeerError as error:
                self._explain(error)
                raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, PeerError):
            self._explain(error)

    def _explain(self, error: PeerError) -> None:
        """Raises the real cause of a wait that was in vain, if others tell that they are in another call."""
        found: dict[int, Call] = {}
        with contextlib.suppress(RuntimeError):  # the store may be gone with a rank
            found = _others_than(self._call())
        if found:
            raise OrderError(_differing(found)) from error

    def _call(self) -> Call:
        return Call(self._ranks, self._number, self._name, described(self._arguments), user_line())


def is_checked() -> bool:
    """Whether each call is compared before it is made."""
    return os.environ.get(_VARIABLE, "0") not in ("", "0")


def are_apart(ranks: Ranks) -> bool:
    """Whether some of these ranks, this one among them, run on another host."""
    return _are_apart(dist.group.WORLD, ranks)


@lru_cache(maxsize=None)
def _are_apart(world: Any, ranks: Ranks) -> bool:
    return not set(ranks) <= {dist.get_rank(), *processes_here()}


@lru_cache(maxsize=1)
def _calls(world: Any) -> _Calls:
    return _Calls()


def forget_calls() -> None:
    """Drops what was cached for process groups, and with it the references to them."""
    _are_apart.cache_clear()
    _calls.cache_clear()


def described(arguments: Sequence[Any]) -> str:
    """What of some arguments all ranks must agree on, as text."""
    return ", ".join(map(_described, arguments))


def _described(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{tuple(value.shape)}"
    if isinstance(value, (list, tuple)):
        return f"[{described(value)}]"
    return str(value)


def _compare(call: Call) -> None:
    """Waits until every member has told which call it makes; an error if they differ."""
    store = _store()
    if is_checked() and call.number > 2:  # all members have told their last call, so they have read the one before
        store.delete_key(_key(call, call.number - 2, dist.get_rank()))
    store.set(_key(call, call.number, dist.get_rank()), _packed(call))
    told = store.multi_get([_key(call, call.number, rank) for rank in call.ranks])
    calls = {rank: _unpacked(text) for rank, text in zip(call.ranks, told)}
    if len({other.what for other in calls.values()}) > 1:
        raise OrderError(_differing(calls))


def _others_than(call: Call) -> dict[int, Call]:
    """What the members of a call that came to nothing are waiting in, this one first; empty if nobody tells that it is
    in another call."""
    store, me = _store(), dist.get_rank()
    store.set_timeout(timedelta(seconds=_TELLING_SECONDS))
    store.set(_late(me), _packed(call))
    found = _told_by(store, {rank for rank in call.ranks if rank != me})
    place = (call.ranks, call.number, call.what)
    return (
        {me: call, **found} if any((other.ranks, other.number, other.what) != place for other in found.values()) else {}
    )


def _told_by(store: Any, waiting: set[int]) -> dict[int, Call]:
    """The calls of those who tell theirs soon. Who has ended, or is stopped, is not waited for."""
    found: dict[int, Call] = {}
    near, end = processes_here(), time.monotonic() + _TELLING_SECONDS
    while waiting and time.monotonic() < end:
        silent = {
            rank for rank in waiting if rank in near and not is_running(near[rank])
        }  # asked first: what it told before counts
        for rank in [rank for rank in waiting if store.check([_late(rank)])]:
            found[rank] = _unpacked(store.get(_late(rank)))
        waiting = waiting - found.keys() - silent
        if waiting:
            time.sleep(_LOOK_SECONDS)
    return found


def _differing(calls: dict[int, Call]) -> str:
    told = "; ".join(f"rank {rank} makes {call}" for rank, call in sorted(calls.items()))
    return (
        f"the ranks call different operations: {told}. Every rank of a group must make the same calls in the same order"
    )


def _store() -> Any:
    world: Any = dist.group.WORLD
    return dist.PrefixStore("oneflow/order", world.get_group_store())


def _key(call: Call, number: int, rank: int) -> str:
    return f"{'_'.join(map(str, call.ranks))}/{number}/{rank}"


def _late(rank: int) -> str:
    return f"late/{rank}"


def _packed(call: Call) -> str:
    return json.dumps([call.ranks, call.number, call.name, call.details, call.line])


def _unpacked(text: bytes) -> Call:
    ranks, *others = json.loads(text)
    return Call(tuple(ranks), *others)
