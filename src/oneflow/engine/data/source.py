"""Data modules and the graph that may be built around them.

A graph is traced once, and data modules read a batch at every step. So while a graph is built it listens to the calls
of data modules: it makes them for real, remembers them, and makes them again at each step. What is made here are the
two sides of that: whoever listens, and what a data module says. Outside a graph a call is just a call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

import torch

from oneflow.engine.core.errors import UnsupportedError


class Source:
    """A data module that stands somewhere in its data. ``state`` is fit for JSON; ``load_state`` of one that does not
    fit is a ``DataError`` and changes nothing."""

    _share = (0, 1)

    def share(self, number: int, shares: int) -> None:
        """From the next batch on has a call give the rows of one of so many equal shares of each; 0 of 1 is all of
        them. Where it stands stays."""
        self._share = number, shares

    def own_rows(self, rows: torch.Tensor) -> torch.Tensor:
        """Those of the share."""
        number, shares = self._share
        each = len(rows) // shares
        return rows if shares == 1 else rows[number * each : (number + 1) * each]

    def draw_from(self, seed: int) -> None:
        """Has what would be drawn by this process's own generator drawn by one of this seed: ranks that read one batch
        draw the same."""

    def state(self) -> dict[str, Any]:
        raise NotImplementedError

    def load_state(self, state: dict[str, Any]) -> None:
        raise NotImplementedError


class Listener(Protocol):
    """A graph that is being built."""

    def call(self, module: object, function: Callable[..., Any], inputs: tuple[Any, ...]) -> Any:
        """``function(*inputs)`` of a data module, now and at every step. Inputs are what such calls gave, or
        constants."""

    def knows(self, value: Any) -> bool:
        """Whether such a call gave ``value``, and it is as it was given."""


_LISTENING: ContextVar[Listener | None] = ContextVar("listening graph", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Has ``listener`` hear of the calls of data modules."""
    token = _LISTENING.set(listener)
    try:
        yield
    finally:
        _LISTENING.reset(token)


def read(module: object, function: Callable[..., Any], *inputs: Any) -> Any:
    """What ``function``, which is ``module``'s and reads or takes what was read, makes of ``inputs``."""
    listener = _LISTENING.get()
    if listener is not None:
        return listener.call(module, function, inputs)
    if type(torch.empty(0)) is not torch.Tensor:  # while something is traced, new tensors have no data
        raise UnsupportedError(
            f"{type(module).__name__} was called while tensors without data are traced, but not by an nn.Graph, which "
            f"reads at every step; "
            "read outside and give the traced function the batch"
        )
    return function(*inputs)


def computed(module: object, function: Callable[..., Any], *inputs: Any) -> Any:
    """What ``function`` makes of tensors: a part of the reading where all of them were read, else a part of the graph's
    own step."""
    listener = _LISTENING.get()
    if listener is not None and all(value is None or listener.knows(value) for value in inputs):
        return listener.call(module, function, inputs)
    return function(*inputs)
