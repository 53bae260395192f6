"""Compiled programs of a job, one per set of input shapes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import RLock
from typing import Generic, TypeVar

import numpy as np
import torch

from oneflow.engine.core.collector import paused

_P = TypeVar("_P")
Shapes = tuple[tuple[int, ...], ...]


class Programs(Generic[_P]):
    """A cache of programs by input shapes that drops the least recently used one.

    Args:
        making: Held by the thread that compiles.
        limit: Number of programs to keep.
        drop: Called with a program that left the cache.
    """

    def __init__(self, making: RLock, limit: int, drop: Callable[[_P], None] | None = None) -> None:
        self._making, self._limit, self._drop = making, limit, drop
        self.by_shapes: OrderedDict[Shapes, _P] = OrderedDict()

    def of(self, shapes: Shapes, make: Callable[[], _P]) -> _P:
        """Returns the program for inputs of these shapes, compiled by ``make`` if it is not in the cache."""
        program = self.by_shapes.get(shapes)
        if program is None:
            return self._compile(shapes, make)
        if len(self.by_shapes) > 1:
            with suppress(KeyError):  # another thread has dropped it
                self.by_shapes.move_to_end(shapes)
        return program

    def _compile(self, shapes: Shapes, make: Callable[[], _P]) -> _P:
        with self._making, paused():
            program = self.by_shapes.get(shapes)  # another thread may have compiled it
            if program is None:
                self.by_shapes[shapes] = program = make()
            while len(self.by_shapes) > self._limit:
                _, oldest = self.by_shapes.popitem(last=False)
                if self._drop is not None:
                    self._drop(oldest)
            return program

    def forget(self) -> None:
        """Drops all programs, without a call of ``drop``."""
        self.by_shapes.clear()


def shapes_of(inputs: Sequence[torch.Tensor | np.ndarray]) -> Shapes:
    return tuple(tuple(value.shape) for value in inputs)
