"""Early gathers (all-gathers that overlap with computation): S(dim) to B, begun when this rank's part is there and
waited for when the whole is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import torch.distributed as dist
from torch import Tensor

from oneflow.engine.collective.calls import in_order, joined, padded_to
from oneflow.engine.collective.groups import Ranks, Sizes, group_of
from oneflow.engine.collective.host_group import HostGroup, host_of
from oneflow.engine.collective.peers import meeting


@dataclass(frozen=True)
class Gather:
    """A gather as a program names it: its number in the program, and what is gathered. It ``is_common`` like a
    bucket."""

    number: int
    dim: int
    sizes: Sizes
    ranks: Ranks
    is_common: bool


class RunningGather:
    """A gather as an executor has it: buffers for the parts of all ranks. Through memory of a host there are two, which
    take turns: a rank that is ahead may write its next part while another still reads this one, but not the part after
    it, for which it has waited for all."""

    def __init__(self, gather: Gather) -> None:
        self._gather = gather
        self._host: HostGroup | None = None
        self._parts: Tensor | None = None
        self._others: Tensor | None = None

    def start(self, value: Tensor) -> Any:
        """Begins to show the others this rank's part."""
        padded = padded_to(value, self._gather.dim, max(self._gather.sizes))
        if self._parts is None:
            self._lay_out(padded)
            assert self._parts is not None
        if self._host is not None and self._others is not None:
            self._parts, self._others = self._others, self._parts
            self._parts[self._host.place].copy_(padded)
            return self._host.reach()
        padded, ranks = padded.contiguous(), self._gather.ranks
        with meeting(ranks):
            return dist.all_gather_single(self._parts.view(-1), padded.view(-1), group_of(ranks), async_op=True), padded

    def wait(self, begun: Any) -> Tensor:
        """The whole, which stays until the next step."""
        assert self._parts is not None
        if self._host is not None:
            self._host.wait(begun)
        else:
            with meeting(self._gather.ranks):
                begun[0].wait()
        return joined(in_order(self._parts, self._gather.ranks), self._gather.dim, self._gather.sizes)

    def _lay_out(self, padded: Tensor) -> None:
        shape = len(self._gather.ranks), *padded.shape
        self._host = host_of(self._gather.ranks, padded, self._gather.is_common)
        if self._host is None:
            self._parts = padded.new_empty(shape)
        else:
            self._parts, self._others = (self._host.memory(prod(shape), padded.dtype).view(shape) for _ in range(2))


# What a program calls. Its first argument is a ``Gather`` there, and a ``RunningGather`` in the code that an executor
# makes of it.


def gather_start(gather: RunningGather, value: Tensor) -> Any:
    """Begins to gather parts."""
    return gather.start(value)


def gather_wait(gather: RunningGather, begun: Any) -> Tensor:
    """The parts of all ranks as one."""
    return gather.wait(begun)
