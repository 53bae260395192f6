"""Blocks of tensors between placements: each rank sends what others need of its part, and puts together its own from
what comes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from oneflow.engine.collective.groups import Sizes
from oneflow.engine.collective.peers import meeting


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
    """What was sent to other ranks, kept until it has arrived."""

    def __init__(self) -> None:
        self._under_way: list[tuple[int, Any, Tensor]] = []

    def send(self, block: Tensor, rank: int, tag: int) -> None:
        """Begins to send; does not wait."""
        with meeting((rank,)):
            self._under_way.append((rank, dist.isend(block, rank, tag=tag), block))

    def settle(self) -> None:
        """Waits until everything that was sent has arrived."""
        while self._under_way:
            rank, work, _ = self._under_way.pop()
            with meeting((rank,)):
                work.wait()


def exchange(
    value: Tensor | None,
    shape: Sizes | None,
    dtype: torch.dtype,
    outgoing: tuple[Piece, ...],
    incoming: tuple[Piece, ...],
    tag: int,
    device: str,
    sends: Sends | None = None,
) -> Tensor | None:
    """Between placements: sends blocks of ``value`` and gives the tensor of ``shape`` put together from the blocks that
    come. An executor has ``sends``, which it settles at the end of a step; without, this returns when what was sent has
    arrived."""
    under_way = Sends() if sends is None else sends
    me = dist.get_rank()
    kept = next((piece.of(value) for piece in outgoing if piece.rank == me), None) if value is not None else None
    for piece in outgoing:
        if piece.rank != me:
            assert value is not None
            under_way.send(piece.of(value).contiguous(), piece.rank, tag)
    result = None if shape is None else _received(shape, dtype, incoming, kept, tag, device)
    if sends is None:
        under_way.settle()
    return result


def _received(
    shape: Sizes, dtype: torch.dtype, incoming: tuple[Piece, ...], kept: Tensor | None, tag: int, device: str
) -> Tensor | None:
    if len(incoming) == 1 and incoming[0].shape == shape and incoming[0].rank == dist.get_rank():
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
    with meeting((piece.rank,)):
        dist.recv(block, piece.rank, tag=tag)
    if block is not target:
        target.copy_(block)
