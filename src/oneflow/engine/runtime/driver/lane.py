"""Lanes (shared-memory channels): the memory through which the inputs of a step reach a rank and its results come back.

What a program is fed and what it gives have fixed shapes, so both sides lay them out once, when it is loaded. Processes
of one host share the memory, and the message of a step carries a few numbers; between hosts the bytes go with the
message. Steps run one at a time and nothing in a lane is needed after its step, so the programs of a rank use the same
memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np

from oneflow.engine.core.shared_memory import aligned


class Field(NamedTuple):
    """An array of a lane."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def room(self) -> int:
        return aligned(prod(self.shape) * self.dtype.itemsize)


@dataclass(frozen=True)
class Form:
    """What a lane holds: for each micro-batch the inputs by number, and for each result or watched value one array per
    micro-batch, or None where other ranks answer."""

    feeds: tuple[dict[int, Field], ...]
    results: tuple[tuple[Field, ...] | None, ...]
    watched: tuple[tuple[Field, ...] | None, ...]

    @property
    def size(self) -> int:
        fed = [field for feeds in self.feeds for field in feeds.values()]
        given = [field for fields in (*self.results, *self.watched) for field in fields or ()]
        return sum(field.room for field in (*fed, *given))


class Lane:
    """The arrays of a form, over a memory. ``fed`` and ``given`` are the bytes of all inputs and of all results."""

    def __init__(self, form: Form, memory: np.ndarray) -> None:
        self._memory = memory
        self._end = 0
        self.feeds = [{i: self._next(field) for i, field in feeds.items()} for feeds in form.feeds]
        middle = self._end
        self.results = [self._next_of_each(fields) for fields in form.results]
        self.watched = [self._next_of_each(fields) for fields in form.watched]
        self.fed, self.given = memory[:middle], memory[middle : self._end]

    def given_by_micro_batch(self) -> list[list[np.ndarray]]:
        """For each micro-batch the arrays of the results and watched values that this rank answers for."""
        return [
            [arrays[i] for arrays in (*self.results, *self.watched) if arrays is not None]
            for i in range(len(self.feeds))
        ]

    def _next(self, field: Field) -> np.ndarray:
        array = np.ndarray(field.shape, field.dtype, buffer=self._memory, offset=self._end)
        self._end += field.room
        return array

    def _next_of_each(self, fields: tuple[Field, ...] | None) -> list[np.ndarray] | None:
        return None if fields is None else [self._next(field) for field in fields]
