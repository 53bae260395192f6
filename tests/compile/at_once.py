"""Ranks of one process whose calls run at once on real tensors, without any graph.

A rank that comes to a collective whose other members are not there yet stops, and begins anew once they have come; what
it was answered before it is answered again. So the program of a rank is a plain function, and no rank needs a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from oneflow.engine import collective
from oneflow.engine.sharding.mesh import Layout

_REDUCTIONS = {"sum": torch.sum, "max": torch.amax, "min": torch.amin, "product": torch.prod}
_MEETINGS = {collective.all_reduce, collective.gather_parts, collective.reduce_parts, collective.exchange_parts}
_Mail = dict[tuple[int, int, int], list[Tensor]]


class _Waiting(Exception):
    """A rank has come to a collective that is not answered yet."""


class Rank:
    """Makes the calls of one rank. ``steps`` are the changes of layout that it was told its calls are there for."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.answers: list[Tensor | None] = []
        self.waits_at: tuple[Any, tuple[Any, ...]] | None = None
        self.steps: list[tuple[Any, Layout, Layout]] = []
        self._met = 0

    def start(self) -> None:
        self._met, self.waits_at, self.steps = 0, None, []

    def call_function(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if function not in _MEETINGS and function is not collective.exchange:
            return function(*args, **kwargs)
        self._met += 1
        if self._met > len(self.answers):
            self.waits_at = function, args
            raise _Waiting
        return self.answers[self._met - 1]

    def box_call(self, function: Any, args: tuple[Any, ...], source: Layout, target: Layout) -> Any:
        self.steps.append((function, source, target))
        return self.call_function(function, args, {})


def together(ranks: Iterable[int], program: Callable[[Rank], Any]) -> dict[int, Any]:
    """What a program, a function without side effects, gives on each of these ranks."""
    members = {rank: Rank(rank) for rank in ranks}
    results: dict[int, Any] = {}
    mail: _Mail = {}
    while True:
        for member in (m for m in members.values() if m.rank not in results):
            member.start()
            try:
                results[member.rank] = program(member)
            except _Waiting:
                pass
        waiting = {rank: member for rank, member in members.items() if rank not in results}
        if not waiting:
            return results
        met, crossed = _meet(waiting), _cross(waiting, mail)
        assert met or crossed, f"ranks {sorted(waiting)} wait for others that never come"


def _meet(waiting: dict[int, Rank]) -> bool:
    """Answers the collectives to which all members have come."""
    places = {
        rank: member.waits_at for rank, member in waiting.items() if member.waits_at and member.waits_at[0] in _MEETINGS
    }
    complete = [
        group
        for group in {args[-1] for _, args in places.values()}
        if all(r in places and places[r][1][-1] == group for r in group)
    ]
    for group in complete:
        functions = {places[rank][0] for rank in group}
        assert len(functions) == 1, "all members call the same collective"
        for rank, answer in zip(group, answers(functions.pop(), [places[rank][1] for rank in group])):
            waiting[rank].answers.append(answer.clone())
    return bool(complete)


def answers(function: Any, calls: Sequence[tuple[Any, ...]]) -> Sequence[Tensor]:
    """What each member of a group gets, in its order, by what the collective is said to do."""
    values, (_, *how, _) = [args[0] for args in calls], calls[0]
    assert all(list(args[1:-1]) == how for args in calls), "all members agree on dims and sizes"
    if function is collective.all_reduce:
        return [_REDUCTIONS[how[0]](torch.stack(values), dim=0).to(values[0].dtype)] * len(values)
    if function is collective.reduce_parts:
        return torch.stack(values).sum(0).split(list(how[1]), how[0])
    sizes = how[1] if function is collective.gather_parts else how[2]
    assert [value.shape[how[0]] for value in values] == list(sizes), "each member has the part that the others expect"
    whole = torch.cat(values, how[0])
    return [whole] * len(values) if function is collective.gather_parts else whole.split(list(how[3]), how[1])


def _cross(waiting: dict[int, Rank], mail: _Mail) -> bool:
    """Delivers what ranks send to other meshes, and answers those to whom all has come."""
    places = {
        rank: member.waits_at[1]
        for rank, member in waiting.items()
        if member.waits_at and member.waits_at[0] is collective.exchange
    }
    for rank, (value, _, _, outgoing, _, tag, *_) in places.items():
        for receiver in {piece.rank for piece in outgoing}:
            mail[rank, receiver, tag] = [piece.of(value) for piece in outgoing if piece.rank == receiver]
    answered = False
    for rank, (_, shape, dtype, _, incoming, tag, *_) in places.items():
        if all((piece.rank, rank, tag) in mail for piece in incoming):
            waiting[rank].answers.append(None if shape is None else _assembled(rank, shape, dtype, incoming, tag, mail))
            answered = True
    return answered


def _assembled(
    rank: int, shape: tuple[int, ...], dtype: torch.dtype, incoming: Sequence[collective.Piece], tag: int, mail: _Mail
) -> Tensor:
    """Between two ranks, blocks come in the order they are sent."""
    result = torch.full(shape, -1, dtype=dtype)
    queues = {piece.rank: iter(mail[piece.rank, rank, tag]) for piece in incoming}
    for piece in incoming:
        block = next(queues[piece.rank])
        assert tuple(block.shape) == piece.shape
        piece.of(result).copy_(block)
    return result
