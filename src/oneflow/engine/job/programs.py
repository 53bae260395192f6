"""The compiled programs of a job: one per set of input shapes, made by one thread at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import RLock
from typing import Generic, TypeVar

import numpy as np
import torch

from oneflow.engine.core.collector import paused

_P = TypeVar("_P")
Shapes = tuple[tuple[int, ...], ...]


class Programs(Generic[_P]):
    """The program for inputs of each set of shapes, made when it is first asked for by the thread that holds
    ``making``."""

    def __init__(self, making: RLock) -> None:
        self._making = making
        self.by_shapes: dict[Shapes, _P] = {}

    def of(self, shapes: Shapes, make: Callable[[], _P]) -> _P:
        """The program for inputs of these shapes, which ``make`` makes."""
        found = self.by_shapes.get(shapes)
        return found if found is not None else self._made(shapes, make)

    def _made(self, shapes: Shapes, make: Callable[[], _P]) -> _P:
        with self._making, paused():
            if shapes not in self.by_shapes:  # another thread may have made it meanwhile
                self.by_shapes[shapes] = make()
            return self.by_shapes[shapes]

    def forget(self) -> None:
        """Lets go of all of them."""
        self.by_shapes.clear()


def shapes_of(inputs: Sequence[torch.Tensor | np.ndarray]) -> Shapes:
    return tuple(tuple(value.shape) for value in inputs)
