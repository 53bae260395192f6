"""Tensors without data on one rank, and what its collectives make of them: shapes, memory, and the bytes that are
communicated.

The bytes of a collective are its payload, what a rank hands over or is given, counted once and whatever way the library
takes:

| collective | bytes of a rank |
|---|---|
| all_reduce | its tensor |
| all_gather | what it is given: the whole less its own part |
| reduce_scatter | what it hands over: the whole less its own part |
| all_to_all | what it hands over: its part less what stays with it |
| send | what it sends to other ranks |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch

import oneflow.engine.collective as collective
from oneflow.engine.collective import Piece
from oneflow.engine.ops.updates import formulas, gradients

Shape = tuple[int, ...]


@dataclass(eq=False)
class Memory:
    """What tensors lie in; views share it."""

    bytes: int


@dataclass(frozen=True, eq=False)
class Held:
    """A tensor of one rank."""

    shape: Shape
    stride: Shape
    dtype: torch.dtype
    memory: Memory

    @property
    def bytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


def fresh(shape: Sequence[int], dtype: torch.dtype) -> Held:
    """A new tensor, contiguous."""
    return Held(tuple(shape), _contiguous(shape), dtype, Memory(prod(shape) * dtype.itemsize))


def _contiguous(shape: Sequence[int]) -> Shape:
    strides, below = [], 1
    for size in reversed(shape):
        strides.append(below)
        below *= max(size, 1)
    return tuple(reversed(strides))


def _like(value: Held) -> Held:
    """A new tensor in the memory order of another."""
    return Held(value.shape, value.stride, value.dtype, Memory(value.bytes))


def _resized(value: Held, dim: int, size: int) -> Shape:
    return tuple(size if d == dim else n for d, n in enumerate(value.shape))


@dataclass(frozen=True)
class Exchange:
    """What one call makes on a rank: its value, the collective, how often and how many bytes it hands over, how many
    bytes it is sent.

    ``workspace`` is memory that it needs while it runs, ``kept`` what stays until the step ends, ``lasting`` what stays
    for good.
    """

    value: Any
    kind: str = "none"
    calls: int = 0
    bytes: int = 0
    received: int = 0
    workspace: int = 0
    kept: tuple[Memory, ...] = ()
    lasting: int = 0


@dataclass(frozen=True)
class _Begun:
    """A bucket on its way."""

    values: list[Held]
    memory: Memory = field(default_factory=lambda: Memory(0))


def exchange_on(rank: int, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Exchange | None:
    """What a collective, or a part of the update, makes on ``rank``; None for any other function."""
    if target in _OF_RANK:
        return _OF_RANK[target](rank, *args, **kwargs)
    if target in _CALLS:
        return _CALLS[target](*args, **kwargs)
    return _updated(kwargs) if getattr(target, "__module__", "") in _UPDATES else None


def _all_reduce(value: Held, how: str, ranks: Shape) -> Exchange:
    return Exchange(fresh(value.shape, value.dtype), "all_reduce", 1, value.bytes)


def _all_gather(value: Held, ranks: Shape) -> Exchange:
    return Exchange(fresh((len(ranks), *value.shape), value.dtype), "all_gather", 1, (len(ranks) - 1) * value.bytes)


def _gather_parts(value: Held, dim: int, sizes: Shape, ranks: Shape) -> Exchange:
    whole = fresh(_resized(value, dim, sum(sizes)), value.dtype)
    stacked = 0 if dim == 0 and len(set(sizes)) == 1 else whole.bytes // max(sum(sizes), 1) * max(sizes) * len(ranks)
    return Exchange(whole, "all_gather", 1, whole.bytes - value.bytes, workspace=stacked)


def _reduce_parts(rank: int, value: Held, dim: int, sizes: Shape, ranks: Shape) -> Exchange:
    mine = fresh(_resized(value, dim, sizes[ranks.index(rank)]), value.dtype)
    stacked = value.bytes // max(sum(sizes), 1) * max(sizes) * len(ranks)
    return Exchange(mine, "reduce_scatter", 1, value.bytes - mine.bytes, workspace=stacked)


def _exchange_parts(
    rank: int, value: Held, source: int, target: int, parts: Shape, after: Shape, ranks: Shape
) -> Exchange:
    mine = after[ranks.index(rank)]
    shape = list(_resized(value, source, sum(parts)))
    shape[target] = mine
    made = fresh(shape, value.dtype)
    stays = prod(_resized(value, target, mine)) * value.dtype.itemsize
    return Exchange(made, "all_to_all", 1, value.bytes - stays, workspace=value.bytes + made.bytes)


def _part_of(value: Held, dim: int, sizes: Shape, place: int) -> Exchange:
    return Exchange(Held(_resized(value, dim, sizes[place]), value.stride, value.dtype, value.memory), "slice")


def _as_partial(value: Held, is_first: bool) -> Exchange:
    return Exchange(value if is_first else _like(value))


def _part_as_partial(value: Held, dim: int, sizes: Shape, place: int) -> Exchange:
    return Exchange(fresh(_resized(value, dim, sum(sizes)), value.dtype))


def _exchange(
    rank: int,
    value: Held | None,
    shape: Shape | None,
    dtype: torch.dtype,
    outgoing: Sequence[Piece],
    incoming: Sequence[Piece],
    *_: Any,
) -> Exchange:
    sent = [prod(piece.shape) * dtype.itemsize for piece in outgoing if piece.rank != rank]
    received = sum(prod(piece.shape) for piece in incoming if piece.rank != rank) * dtype.itemsize
    made = None if shape is None else value if _stays(rank, shape, incoming) else fresh(shape, dtype)
    # A block that is all of a tensor is sent from where it lies, any other is copied; both stay until everything has
    # arrived.
    kept = [
        value.memory if piece.shape == value.shape else Memory(prod(piece.shape) * dtype.itemsize)
        for piece in outgoing
        if value is not None and piece.rank != rank
    ]
    return Exchange(made, "send", len(sent), sum(sent), received, kept=tuple(kept))


def _stays(rank: int, shape: Shape, incoming: Sequence[Piece]) -> bool:
    return len(incoming) == 1 and incoming[0].rank == rank and incoming[0].shape == shape


def _bucket_start(bucket: Any, values: list[Held]) -> Exchange:
    size = sum(value.bytes for value in values)
    return Exchange(_Begun(values), "all_reduce", 1, size, lasting=size)


def _bucket_wait(bucket: Any, begun: _Begun) -> Exchange:
    return Exchange([Held(v.shape, v.stride, v.dtype, begun.memory) for v in begun.values])


def _gather_into(variables: list[Held], parts: list[Held], sizes: list[Shape], ranks: Shape) -> Exchange:
    moved = sum(variable.bytes for variable in variables) - sum(part.bytes for part in parts)
    rows = sum(variable.bytes // variable.shape[0] * max(extents) for variable, extents in zip(variables, sizes))
    return Exchange(None, "all_gather", 1, moved, workspace=rows * (1 + len(ranks)))


def _norm_over(*_: Any, norm_type: float = 2.0) -> Exchange:
    return Exchange(fresh((), torch.float64), "all_reduce", 1, torch.float64.itemsize)


def _finite_over(*_: Any) -> Exchange:
    return Exchange(fresh((), torch.bool), "all_reduce", 1, torch.int32.itemsize)


def _scaled(grads: list[Held], factor: Any) -> Exchange:
    return Exchange([_like(grad) for grad in grads])


def _regularized(params: list[Held], grads: list[Held], l1: Sequence[float], l2: Sequence[float]) -> Exchange:
    return Exchange([_like(grad) if a or b else grad for grad, a, b in zip(grads, l1, l2)])


def _clipped(grads: list[Held], **_: Any) -> Exchange:
    return Exchange([_like(grad) for grad in grads])


def _all_finite(grads: list[Held]) -> Exchange:
    return Exchange(fresh((), torch.bool))


def _updated(numbers: dict[str, Any]) -> Exchange:
    """Variables are changed where they lie. The norms of those that several ranks share are summed: of the variable and
    of its step."""
    norms = numbers.get("norms")
    count = 2 * sum(bool(ranks) for ranks in norms.groups) if isinstance(norms, collective.NormOverParts) else 0
    return Exchange(None, "all_reduce" if count else "none", count, count * torch.float32.itemsize)


_UPDATES = (formulas.__name__, gradients.__name__)
_OF_RANK: dict[Any, Callable[..., Exchange]] = {
    collective.reduce_parts: _reduce_parts,
    collective.exchange_parts: _exchange_parts,
    collective.exchange: _exchange,
}
_CALLS: dict[Any, Callable[..., Exchange]] = {
    collective.all_reduce: _all_reduce,
    collective.all_gather: _all_gather,
    collective.gather_parts: _gather_parts,
    collective.part_of: _part_of,
    collective.as_partial: _as_partial,
    collective.part_as_partial: _part_as_partial,
    collective.bucket_start: _bucket_start,
    collective.bucket_wait: _bucket_wait,
    collective.gather_into: _gather_into,
    collective.norm_over: _norm_over,
    collective.finite_over: _finite_over,
    gradients.scaled: _scaled,
    gradients.regularized: _regularized,
    gradients.clipped: _clipped,
    gradients.clipped_by_norm: _clipped,
    gradients.all_finite: _all_finite,
}
