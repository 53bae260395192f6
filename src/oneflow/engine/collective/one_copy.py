"""Variables that lie once on a host (one copy for all ranks that hold the whole of them), each rank of which updates
its own rows.

Where ranks gather the factors of a gradient, each can make all of it; but then every one of them multiplies the rows of
all. With one copy in memory that they share, each makes the rows that are its own, and nothing is sent: all see what
each has written.

    each rank   says that it reads the variable no more in this step
    all         wait until every rank has said so
    each rank   updates its rows
    all         wait until every row is updated
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from oneflow.engine.collective.groups import Ranks
from oneflow.engine.collective.host_group import HostGroup, host_of
from oneflow.engine.ops.updates import gradients


@dataclass(frozen=True)
class OneCopy:
    """The ranks that update variables of a program together. All of them run the same program."""

    ranks: Ranks


class RunningOneCopy:
    """The same as an executor has it. Variables of which each rank has a copy of its own are updated by each as a
    whole."""

    def __init__(self, one_copy: OneCopy) -> None:
        self._ranks = one_copy.ranks
        self._host: HostGroup | None = None

    def read_last(self, tensors: Sequence[Tensor]) -> int | None:
        """Says that this rank reads them no more in this step; what it gives is for ``update``."""
        if self._host is None:
            self._host = host_of(self._ranks, tensors[0], True)
        if self._host is None or not all(tensor.data_ptr() in self._host.shared for tensor in tensors):
            return None
        return self._host.reach()

    def update(
        self, begun: int | None, params: list[Tensor], a: Tensor, b: Tensor, *states_and_lr: Any, **numbers: Any
    ) -> None:
        """``gradients.by_rows`` for the rows of this rank, or for all."""
        if self._host is None or begun is None:
            gradients.by_rows(params, a, b, *states_and_lr, **numbers)
            return
        self._host.wait(begun)
        *states, lr = states_and_lr
        count, size, place = len(params[0]), self._host.size, self._host.place
        rows = slice(count * place // size, count * (place + 1) // size)
        gradients.by_rows(
            [params[0][rows]], a[rows], b, *([state[rows] for state in column] for column in states), lr, **numbers
        )

    def wait(self, begun: Sequence[int | None]) -> None:
        """Returns when all rows of all variables are updated."""
        if self._host is not None and any(milestone is not None for milestone in begun):
            self._host.wait(self._host.reach())


# What a program calls. Its first argument is a ``OneCopy`` there, and a ``RunningOneCopy`` in the code that an executor
# makes of it.


def read_last(one_copy: RunningOneCopy, tensors: list[Tensor]) -> int | None:
    """Tells the other ranks that this one reads a variable and its states no more."""
    return one_copy.read_last(tensors)


def update_rows(one_copy: RunningOneCopy, begun: int | None, *arguments: Any, **numbers: Any) -> None:
    """Updates this rank's rows of a variable."""
    one_copy.update(begun, *arguments, **numbers)


def rows_wait(one_copy: RunningOneCopy, begun: list[int | None]) -> None:
    """Waits for the rows of the other ranks."""
    one_copy.wait(begun)


# Who has the variables calls these, on all of the ranks together.


def hold_once(tensor: Tensor, ranks: Ranks) -> None:
    """Has a tensor, of which all of these ranks have an equal copy, lie once for them all if they are on one host."""
    host = host_of(ranks, tensor, True)
    if host is None or not tensor.numel() or not tensor.is_contiguous():
        return
    memory = host.memory(tensor.numel(), tensor.dtype).view(tensor.shape)
    if host.place == 0:
        memory.copy_(tensor)
    host.wait(host.reach())
    tensor.data = memory
    host.shared.add(tensor.data_ptr())


def hold_each(tensor: Tensor, ranks: Ranks) -> None:
    """Gives each rank a copy of its own again, if they hold one together."""
    host = host_of(ranks, tensor, True)
    if host is not None and tensor.data_ptr() in host.shared:
        host.shared.remove(tensor.data_ptr())
        tensor.data = tensor.clone()
