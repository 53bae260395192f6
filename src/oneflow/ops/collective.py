"""What a rank's program calls to exchange tensors with others. ``ranks`` are the members of a group in order, this rank among them.

Parts along a dim may be uneven: ``sizes`` gives the extent of each member's part. Ranks that hold nothing of a dim are possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from inspect import signature
from math import prod
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from oneflow.core.shared_memory import aligned
from oneflow.ops.host_group import HostGroup, host_group
from oneflow.ops.shared_sum import SharedSum

Ranks = tuple[int, ...]
Sizes = tuple[int, ...]
_T = TypeVar("_T")
_REDUCTIONS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN, "product": dist.ReduceOp.PRODUCT}


def group_of(ranks: Ranks) -> Any:
    """The process group of these ranks; those of one set are one group. It must have been made by ``make_groups``."""
    return dist.group.WORLD if len(ranks) == dist.get_world_size() else _group(tuple(sorted(ranks)))


@lru_cache(maxsize=None)
def _group(ranks: Ranks) -> Any:
    return dist.new_group(list(ranks))


def make_groups(groups: Sequence[Ranks]) -> None:
    """Makes process groups for the programs to come. All ranks make all of them in one order, members or not: torch numbers
    them, and a group to which two members give different numbers never comes about."""
    for ranks in groups:
        group_of(ranks)


def groups_in(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Ranks]:
    """The groups of ranks that a call of a rank's program is made together with."""
    if function in (bucket_start, gather_start):
        return [args[0].ranks]
    if isinstance(kwargs.get("norms"), NormOverParts):
        return [ranks for ranks in kwargs["norms"].groups if ranks]
    if getattr(function, "__module__", None) != __name__ or "ranks" not in (names := list(signature(function).parameters)):
        return []
    return [args[names.index("ranks")]]


def all_reduce(value: Tensor, how: str, ranks: Ranks) -> Tensor:
    """The elementwise reduction of every rank's value."""
    result = value.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(result, _REDUCTIONS[how], group_of(ranks))
    return result


def all_gather(value: Tensor, ranks: Ranks) -> Tensor:
    """The values of all ranks, of equal shapes, stacked along a new first dim."""
    result = value.new_empty((len(ranks), *value.shape))
    dist.all_gather_single(result.view(-1), value.contiguous().view(-1), group_of(ranks))
    return _in_order(result, ranks)


def _in_order(stacked: Tensor, ranks: Ranks) -> Tensor:
    """What a process group has stacked by rank, in the order of the placement."""
    return stacked if _is_sorted(ranks) else torch.stack(_by_place(stacked.unbind(), ranks))


def gather_parts(value: Tensor, dim: int, sizes: Sizes, ranks: Ranks) -> Tensor:
    """S(dim) to B: the parts of all ranks, one behind the other along ``dim``."""
    return _joined(all_gather(_padded(value, dim, max(sizes)), ranks), dim, sizes)


def _joined(stacked: Tensor, dim: int, sizes: Sizes) -> Tensor:
    """Padded parts, stacked in order, as the whole: where they lie, if they can stay there."""
    if len(set(sizes)) == 1 and dim == 0:
        return stacked.flatten(0, 1)
    return torch.cat([part.narrow(dim, 0, size) for part, size in zip(stacked.unbind(), sizes)], dim)


def reduce_parts(value: Tensor, dim: int, sizes: Sizes, ranks: Ranks) -> Tensor:
    """P to S(dim): this rank's part of the sum of all values."""
    parts = [_padded(part, dim, max(sizes)) for part in value.split(list(sizes), dim)]
    mine = torch.empty_like(parts[0], memory_format=torch.contiguous_format)
    dist.reduce_scatter_single(mine.view(-1), torch.stack(_by_rank(parts, ranks)).reshape(-1), group=group_of(ranks))
    return mine.narrow(dim, 0, sizes[_place(ranks)])


def exchange_parts(value: Tensor, source: int, target: int, source_sizes: Sizes, target_sizes: Sizes, ranks: Ranks) -> Tensor:
    """S(source) to S(target): each rank sends each other what that one is to hold."""
    me = _place(ranks)
    outgoing = _by_rank([part.reshape(-1) for part in value.split(list(target_sizes), target)], ranks)
    shapes = [list(value.shape) for _ in ranks]
    for shape, size in zip(shapes, source_sizes):
        shape[source], shape[target] = size, target_sizes[me]
    shapes = _by_rank(shapes, ranks)
    counts = [prod(shape) for shape in shapes], [part.numel() for part in outgoing]
    flat = value.new_empty(sum(counts[0]))
    dist.all_to_all_single(flat, torch.cat(outgoing), *counts, group=group_of(ranks))
    incoming = [part.view(shape) for part, shape in zip(flat.split(counts[0]), shapes)]
    return torch.cat(_by_place(incoming, ranks), source)


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


def _padded(value: Tensor, dim: int, size: int) -> Tensor:
    if value.shape[dim] == size:
        return value
    shape = list(value.shape)
    shape[dim] = size - value.shape[dim]
    return torch.cat([value, value.new_zeros(shape)], dim)


def _place(ranks: Ranks) -> int:
    return ranks.index(dist.get_rank())


def _is_sorted(ranks: Ranks) -> bool:
    return all(first < second for first, second in zip(ranks, ranks[1:]))


def _by_rank(values: Sequence[_T], ranks: Ranks) -> list[_T]:
    """What belongs to each member, in the order of a process group: by rank, whatever the order of the placement."""
    return [values[ranks.index(rank)] for rank in sorted(ranks)]


def _by_place(values: Sequence[_T], ranks: Ranks) -> list[_T]:
    """The inverse of ``_by_rank``."""
    order = sorted(ranks)
    return [values[order.index(rank)] for rank in ranks]


@dataclass(frozen=True)
class Piece:
    """A block of a local tensor that goes to, or comes from, another rank."""

    rank: int
    start: Sizes
    shape: Sizes

    def of(self, value: Tensor) -> Tensor:
        """The block, as a view."""
        return value[tuple(slice(first, first + size) for first, size in zip(self.start, self.shape))]


class Sends:
    """What a program has sent to other ranks, kept until it has arrived."""

    def __init__(self) -> None:
        self._under_way: list[tuple[Any, Tensor]] = []

    def send(self, block: Tensor, rank: int, tag: int) -> None:
        """Begins to send; does not wait."""
        self._under_way.append((dist.isend(block, rank, tag=tag), block))

    def settle(self) -> None:
        """Waits until everything that was sent has arrived."""
        while self._under_way:
            work, _ = self._under_way.pop()
            work.wait()


def exchange(
    value: Tensor | None,
    shape: Sizes | None,
    dtype: torch.dtype,
    outgoing: tuple[Piece, ...],
    incoming: tuple[Piece, ...],
    tag: int,
    device: str,
    sends: Sends,
) -> Tensor | None:
    """Between placements: sends blocks of ``value`` and gives the tensor of ``shape`` put together from the blocks that come."""
    me = dist.get_rank()
    kept = next((piece.of(value) for piece in outgoing if piece.rank == me), None) if value is not None else None
    for piece in outgoing:
        if piece.rank != me:
            assert value is not None
            sends.send(piece.of(value).contiguous(), piece.rank, tag)
    if shape is None:
        return None
    if len(incoming) == 1 and incoming[0].shape == shape and incoming[0].rank == me:
        return kept
    result = torch.empty(shape, dtype=dtype, device=device)
    for piece in incoming:
        _receive(piece, result, kept, tag)
    return result


def _receive(piece: Piece, result: Tensor, kept: Tensor | None, tag: int) -> None:
    target = piece.of(result)
    if piece.rank == dist.get_rank():
        assert kept is not None
        target.copy_(kept)
        return
    block = target if target.is_contiguous() else torch.empty(piece.shape, dtype=result.dtype, device=result.device)
    dist.recv(block, piece.rank, tag=tag)
    if block is not target:
        target.copy_(block)


class Bucket:
    """Tensors that are summed over ranks together: one flat buffer, laid out for them in the first step, and one sum a step.

    It ``is_common`` when the ranks always run the same program, so that they meet in this bucket and no other.
    """

    def __init__(self, ranks: Ranks, is_common: bool = True) -> None:
        self.ranks = ranks
        self.is_common = is_common
        self._shared: SharedSum | None = None
        self._flat: Tensor | None = None
        self._rooms: list[Tensor] = []
        self._sums: list[Tensor] = []

    def room(self, place: int) -> Tensor | None:
        """Where the value of that place will lie; None as long as that is not known. What is made there need not be copied."""
        return self._rooms[place] if self._rooms else None

    def start(self, values: Sequence[Tensor]) -> Any:
        """Has the values in the buffer and begins their sum over the ranks."""
        if not self._rooms:
            self._lay_out(values)
        for room, value in zip(self._rooms, values):
            if room is not value:
                room.copy_(value)
        return self._shared.begin() if self._shared is not None else dist.all_reduce(self._flat, group=group_of(self.ranks), async_op=True)

    def wait(self, begun: Any) -> list[Tensor]:
        """The sums, in the strides the values had."""
        self._shared.finish(begun) if self._shared is not None else begun.wait()
        return self._sums

    def _lay_out(self, values: Sequence[Tensor]) -> None:
        count, first = sum(map(_room_for, values)), values[0]
        host = _host_of(self.ranks, first, self.is_common)
        if host is not None:
            self._shared = SharedSum(host, count, first.dtype)
        self._flat = first.new_empty(count) if self._shared is None else self._shared.row
        self._rooms = _parts(self._flat, values)
        self._sums = self._rooms if self._shared is None else _parts(self._shared.sum, values)


def _host_of(ranks: Ranks, value: Tensor, is_common: bool) -> HostGroup | None:
    """The ranks as ranks of one host, if they can exchange values like this one through its memory."""
    return host_group(group_of(ranks)) if is_common and value.is_cpu else None


def _room_for(value: Tensor) -> int:
    """Elements of a buffer for a value: so many that the next one begins at a cache line."""
    return aligned(value.nbytes) // value.itemsize


def _parts(flat: Tensor, values: Sequence[Tensor]) -> list[Tensor]:
    """Consecutive parts of a flat tensor, each shaped like a value, in its strides where they have no gaps."""
    parts = flat.split([_room_for(value) for value in values])
    return [part.as_strided(value.shape, _dense(value).stride(), part.storage_offset()) for part, value in zip(parts, values)]


def _dense(value: Tensor) -> Tensor:
    """The value in strides without gaps: its own where they have none."""
    is_dense = value.is_contiguous() or (value.dim() == 4 and value.is_contiguous(memory_format=torch.channels_last))
    return value if is_dense else value.contiguous()


def bucket_start(bucket: Bucket, values: list[Tensor]) -> Any:
    """Begins to reduce the values of a bucket."""
    return bucket.start(values)


def product_in(bucket: Bucket, place: int, a: Tensor, b: Tensor) -> Tensor:
    """A matrix product, made where a bucket wants it."""
    room = bucket.room(place)
    return torch.mm(a, b) if room is None else torch.mm(a, b, out=room)


def bucket_wait(bucket: Bucket, begun: Any) -> list[Tensor]:
    """The reduced values of a bucket."""
    return bucket.wait(begun)


class Gather:
    """S(dim) to B, begun when this rank's part is there and waited for when the whole is read. It ``is_common`` like a bucket."""

    def __init__(self, dim: int, sizes: Sizes, ranks: Ranks, is_common: bool) -> None:
        self.dim = dim
        self.sizes = sizes
        self.ranks = ranks
        self.is_common = is_common
        self._host: HostGroup | None = None
        self._parts: Tensor | None = None

    def start(self, value: Tensor) -> Any:
        """Begins to show the others this rank's part."""
        padded = _padded(value, self.dim, max(self.sizes))
        if self._parts is None:
            self._lay_out(padded)
        assert self._parts is not None
        if self._host is not None:
            self._parts[self._host.place].copy_(padded)
            return self._host.reach()
        padded = padded.contiguous()
        return dist.all_gather_single(self._parts.view(-1), padded.view(-1), group_of(self.ranks), async_op=True), padded

    def wait(self, begun: Any) -> Tensor:
        """The whole, which stays until the next step."""
        assert self._parts is not None
        self._host.wait(begun) if self._host is not None else begun[0].wait()
        return _joined(_in_order(self._parts, self.ranks), self.dim, self.sizes)

    def _lay_out(self, padded: Tensor) -> None:
        shape = len(self.ranks), *padded.shape
        self._host = _host_of(self.ranks, padded, self.is_common)
        self._parts = padded.new_empty(shape) if self._host is None else self._host.memory(prod(shape), padded.dtype).view(shape)


def gather_start(gather: Gather, value: Tensor) -> Any:
    """Begins to gather parts."""
    return gather.start(value)


def gather_wait(gather: Gather, begun: Any) -> Tensor:
    """The parts of all ranks as one."""
    return gather.wait(begun)


def gather_into(variables: list[Tensor], parts: list[Tensor], sizes: list[Sizes], ranks: Ranks) -> None:
    """Writes into each variable the parts, along dim 0, that the ranks have updated; all of them in one collective."""
    most = [max(extents) for extents in sizes]
    flat = torch.cat([_padded(part, 0, extent).reshape(-1) for part, extent in zip(parts, most)])
    rows = all_gather(flat, ranks)
    lengths = [extent * (variable.numel() // variable.shape[0]) for variable, extent in zip(variables, most)]
    for place, row in enumerate(rows.unbind()):
        for variable, extents, block in zip(variables, sizes, row.split(lengths)):
            target = part_of(variable, 0, extents, place)
            target.copy_(block[: target.numel()].view(target.shape))


def norm_over(grads: list[Tensor], owned: list[bool], ranks: Ranks, device: str) -> Tensor:
    """The common norm of gradients that lie on several ranks. ``owned`` says which of them this rank counts: each block is counted once."""
    squares = [torch.linalg.vector_norm(grad, dtype=torch.float64).square() for grad, mine in zip(grads, owned) if mine]
    total = torch.stack(squares).sum() if squares else torch.zeros((), dtype=torch.float64, device=device)
    return all_reduce(total, "sum", ranks).sqrt()


def finite_over(is_finite: Tensor, ranks: Ranks, device: str) -> Tensor:
    """Whether it is true on every rank."""
    return all_reduce(is_finite.to(device, torch.int32), "min", ranks).to(torch.bool)


@dataclass(frozen=True)
class NormOverParts:
    """The norm of each of some tensors that may be split over ranks: ``groups[i]`` holds the i-th, () where it is whole."""

    groups: tuple[Ranks, ...]

    def __call__(self, values: Sequence[Tensor]) -> list[Tensor]:
        norms = [torch.linalg.vector_norm(value) for value in values]
        return [all_reduce(n.square(), "sum", ranks).sqrt() if ranks else n for n, ranks in zip(norms, self.groups)]
