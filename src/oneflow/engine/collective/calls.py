"""What a rank's program calls to exchange tensors with others: all-reduce, all-gather, reduce-scatter, all-to-all.
``ranks`` are the members of a group in order, this rank among them.

Parts along a dim may be uneven: ``sizes`` gives the extent of each member's part. Ranks that hold nothing of a dim are
possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, prod

import torch
import torch.distributed as dist
from torch import Tensor

from oneflow.engine.collective.groups import Ranks, Sizes, by_place, by_rank, group_of, is_sorted, place_in
from oneflow.engine.collective.peers import meeting
from oneflow.engine.collective.rooms import fits, reduced, room_of

_REDUCTIONS = {
    "sum": dist.ReduceOp.SUM,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
    "product": dist.ReduceOp.PRODUCT,
}


def all_reduce(value: Tensor, how: str, ranks: Ranks) -> Tensor:
    """The elementwise reduction of every rank's value."""
    room = room_of(ranks, value)
    if room is not None:
        return room.reduce(value, how, _told(f"all_reduce {how}", value))
    result = value.clone(memory_format=torch.contiguous_format)
    with meeting(ranks):
        dist.all_reduce(result, _REDUCTIONS[how], group_of(ranks))
    return result


def broadcast(value: Tensor, ranks: Ranks) -> Tensor:
    """The value of the first of these ranks; all of them give one of the same shape and dtype."""
    result = value.clone(memory_format=torch.contiguous_format)
    with meeting(ranks):
        dist.broadcast(result, ranks[0], group_of(ranks))
    return result


def all_gather(value: Tensor, ranks: Ranks) -> Tensor:
    """The values of all ranks, of equal shapes, stacked along a new first dim."""
    room = room_of(ranks, value)
    if room is not None:
        return in_order(room.gather(value, _told("all_gather", value)), ranks)
    result = value.new_empty((len(ranks), *value.shape))
    with meeting(ranks):
        dist.all_gather_single(result.view(-1), value.contiguous().view(-1), group_of(ranks))
    return in_order(result, ranks)


def in_order(stacked: Tensor, ranks: Ranks) -> Tensor:
    """What a process group has stacked by rank, in the order of the placement."""
    return stacked if is_sorted(ranks) else torch.stack(by_place(stacked.unbind(), ranks))


def gather_parts(value: Tensor, dim: int, sizes: Sizes, ranks: Ranks) -> Tensor:
    """S(dim) to B: the parts of all ranks, one behind the other along ``dim``."""
    shapes = [(*value.shape[:dim], size, *value.shape[dim + 1 :]) for size in sizes]
    rows = _shared_parts(value, f"gather_parts {dim} {sizes}", shapes, ranks)
    if rows is not None:
        return torch.cat(rows, dim)
    return joined(all_gather(padded_to(value, dim, max(sizes)), ranks), dim, sizes)


def joined(stacked: Tensor, dim: int, sizes: Sizes) -> Tensor:
    """Padded parts, stacked in order, as the whole: where they lie, if they can stay there."""
    if len(set(sizes)) == 1 and dim == 0:
        return stacked.flatten(0, 1)
    return torch.cat([part.narrow(dim, 0, size) for part, size in zip(stacked.unbind(), sizes)], dim)


def reduce_parts(value: Tensor, dim: int, sizes: Sizes, ranks: Ranks) -> Tensor:
    """P to S(dim): this rank's part of the sum of all values."""
    room = room_of(ranks, value)
    if room is not None and not fits(value.numel(), value.dtype):
        return part_of(
            room.reduce(value, "sum", _told(f"reduce_parts {dim}", value)), dim, sizes, place_in(ranks)
        ).contiguous()
    if room is not None:
        rows = room.exchange(value.reshape(-1), _told(f"reduce_parts {dim}", value))
        found = [part_of(row.view(value.shape), dim, sizes, place_in(ranks)) for row in rows]
        return reduced(found, "sum", torch.empty_like(found[0], memory_format=torch.contiguous_format))
    if value.device.type == "cpu":
        return _added_up(value, dim, sizes, ranks)
    parts = [padded_to(part, dim, max(sizes)) for part in value.split(list(sizes), dim)]
    mine = torch.empty_like(parts[0], memory_format=torch.contiguous_format)
    with meeting(ranks):
        dist.reduce_scatter_single(mine.view(-1), torch.stack(by_rank(parts, ranks)).reshape(-1), group=group_of(ranks))
    return mine.narrow(dim, 0, sizes[place_in(ranks)])


def _added_up(value: Tensor, dim: int, sizes: Sizes, ranks: Ranks) -> Tensor:
    """What others have of this rank's part, sent and added up here: gloo's own reduce-scatter sends as much as its
    all-reduce."""
    outgoing = by_rank([part.reshape(-1) for part in value.split(list(sizes), dim)], ranks)
    shape = (*value.shape[:dim], sizes[place_in(ranks)], *value.shape[dim + 1 :])
    incoming = value.new_empty((len(ranks), *shape))
    with meeting(ranks):
        dist.all_to_all_single(
            incoming.view(-1),
            torch.cat(outgoing),
            [prod(shape)] * len(ranks),
            [part.numel() for part in outgoing],
            group=group_of(ranks),
        )
    return reduced(by_place(incoming.unbind(), ranks), "sum", value.new_empty(shape))


def exchange_parts(
    value: Tensor, source: int, target: int, source_sizes: Sizes, target_sizes: Sizes, ranks: Ranks
) -> Tensor:
    """S(source) to S(target): each rank sends each other what that one is to hold."""
    me = place_in(ranks)
    wholes = [(*value.shape[:source], size, *value.shape[source + 1 :]) for size in source_sizes]
    rows = _shared_parts(value, f"exchange_parts {source} {target} {source_sizes} {target_sizes}", wholes, ranks)
    if rows is not None:
        return torch.cat([part_of(row, target, target_sizes, me) for row in rows], source)
    outgoing = by_rank([part.reshape(-1) for part in value.split(list(target_sizes), target)], ranks)
    shapes = [list(value.shape) for _ in ranks]
    for shape, size in zip(shapes, source_sizes):
        shape[source], shape[target] = size, target_sizes[me]
    shapes = by_rank(shapes, ranks)
    counts = [prod(shape) for shape in shapes], [part.numel() for part in outgoing]
    flat = value.new_empty(sum(counts[0]))
    with meeting(ranks):
        dist.all_to_all_single(flat, torch.cat(outgoing), *counts, group=group_of(ranks))
    incoming = [part.view(shape) for part, shape in zip(flat.split(counts[0]), shapes)]
    return torch.cat(by_place(incoming, ranks), source)


def _shared_parts(value: Tensor, name: str, shapes: Sequence[Sequence[int]], ranks: Ranks) -> list[Tensor] | None:
    """The values of all members, which have these shapes, where they lie in memory that the members share; None if they
    share none."""
    room, counts = room_of(ranks, value), [prod(shape) for shape in shapes]
    if room is None or not fits(max(counts), value.dtype):
        return None
    rows = by_place(room.exchange(value.reshape(-1), f"{name} {value.dtype}", max(counts)), ranks)
    return [row[:count].view(tuple(shape)) for row, count, shape in zip(rows, counts, shapes)]


def _told(name: str, value: Tensor) -> str:
    """A call, as far as all members must make the same."""
    return f"{name} {str(value.dtype).removeprefix('torch.')}{tuple(value.shape)}"


def part_of(value: Tensor, dim: int, sizes: Sizes, place: int) -> Tensor:
    """B to S(dim): the part of the member at ``place``."""
    return value.narrow(dim, sum(sizes[:place]), sizes[place])


def as_partial(value: Tensor, is_first: bool) -> Tensor:
    """B to P: the value on the first rank, zeros on the others."""
    return value if is_first else torch.zeros_like(value)


def part_as_partial(value: Tensor, dim: int, sizes: Sizes, place: int) -> Tensor:
    """S(dim) to P: the rank's part where it belongs, zeros around it."""
    shape = list(value.shape)
    shape[dim] = sum(sizes)
    result = value.new_zeros(shape)
    result.narrow(dim, sum(sizes[:place]), sizes[place]).copy_(value)
    return result


def padded_to(value: Tensor, dim: int, size: int) -> Tensor:
    """The value with zeros behind it along a dim, so that it has that size."""
    if value.shape[dim] == size:
        return value
    shape = list(value.shape)
    shape[dim] = size - value.shape[dim]
    return torch.cat([value, value.new_zeros(shape)], dim)


def gather_into(variables: list[Tensor], parts: list[Tensor], sizes: list[Sizes], ranks: Ranks) -> None:
    """Writes into each variable the parts, along dim 0, that the ranks have updated; all of them in one collective."""
    most = [max(extents) for extents in sizes]
    flat = torch.cat([padded_to(part, 0, extent).reshape(-1) for part, extent in zip(parts, most)])
    rows = all_gather(flat, ranks)
    lengths = [extent * (variable.numel() // variable.shape[0]) for variable, extent in zip(variables, most)]
    for place, row in enumerate(rows.unbind()):
        for variable, extents, block in zip(variables, sizes, row.split(lengths)):
            target = part_of(variable, 0, extents, place)
            target.copy_(block[: target.numel()].view(target.shape))


def norm_over(grads: list[Tensor], owned: list[bool], ranks: Ranks, device: str, norm_type: float = 2.0) -> Tensor:
    """The common p-norm of gradients that lie on several ranks. ``owned`` says which of them this rank counts: each
    block is counted once."""
    norms = [torch.linalg.vector_norm(grad, norm_type, dtype=torch.float64) for grad, mine in zip(grads, owned) if mine]
    own = torch.stack(norms) if norms else torch.zeros(1, dtype=torch.float64, device=device)
    if norm_type == inf:
        return all_reduce(own.max(), "max", ranks)
    return all_reduce(own.pow(norm_type).sum(), "sum", ranks).pow(1.0 / norm_type)


def finite_over(is_finite: Tensor, ranks: Ranks, device: str) -> Tensor:
    """Whether it is true on every rank."""
    return all_reduce(is_finite.to(device, torch.int32), "min", ranks).to(torch.bool)


@dataclass(frozen=True)
class NormOverParts:
    """The norm of each of some tensors that may be split over ranks: ``groups[i]`` holds the i-th, () where it is
    whole."""

    groups: tuple[Ranks, ...]

    def __call__(self, values: Sequence[Tensor]) -> list[Tensor]:
        norms = [torch.linalg.vector_norm(value) for value in values]
        return [all_reduce(n.square(), "sum", ranks).sqrt() if ranks else n for n, ranks in zip(norms, self.groups)]
