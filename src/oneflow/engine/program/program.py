"""Program: one step of one job on one rank of an SPMD run, as plain data. It can be sent (``serialize.py``), compared
and cached by its digest (``digest.py``), and run twice.

What a program is fed, what it keeps and what it gives are known by keys:

| key | value |
|---|---|
| ("variable", name) | this rank's part of a variable |
| ("prepared", number) | what was made of variables alone when they last changed |
| ("feed", number) | this rank's part of an input or of what a reader gives, one per micro-batch |
| ("step",) | the number of the step, for random ops |
| ("scale",), ("unscale",) | the loss scale and its inverse |
| ("rate", number) | the learning rate of a group of variables |
| ("value", number) | anything that one section makes for another |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import fx

from oneflow.engine.program.schedule import Slot

Key = tuple[Any, ...]

After = Callable[[str, Any], None]
"""Is called with the name of a stage of the compiler and what it has left: a graph, an assignment, a program."""


def nothing_after(stage: str, left: Any) -> None:
    """What is done after a stage outside tests."""


_ORDER = ("variable", "prepared", "feed", "step", "scale", "unscale", "rate", "value")


def key_order(key: Key) -> tuple[int, Key]:
    """Arguments come in this order: what stays from step to step, what a step brings, numbers."""
    return _ORDER.index(key[0]), key


@dataclass(frozen=True)
class Section:
    """A part of a step: a graph whose arguments and outputs are known by their keys. Its arguments are in the order of
    ``key_order``."""

    graph: fx.Graph
    inputs: tuple[Key, ...]
    outputs: tuple[Key, ...]


@dataclass(frozen=True)
class Program:
    """One step of one job on one rank.

    Without gradient accumulation and with a fixed loss scale there is one section, "step". Otherwise "prologue" runs
    once per step; "micro_batch", or under a pipeline "forward" and "backward" in the order of ``schedule``, once per
    micro-batch; "reduce" once with the gradients' sums over micro-batches; "update" once if they are finite. A predict
    program may have a section "prepare", whose outputs serve every step until a variable changes.

    ``feeds`` are the numbers of the feeds that it takes. ``results`` and ``watched`` are the keys of what this rank
    sends back, None where another rank does; ``gradients`` those that are accumulated; ``finite`` tells whether they
    are numbers. The program ``is_common`` if all ranks of its placement run the same calls in the same order. It
    ``writes`` if a step may change variables. Graphs hold plain values only: what they stand for at run time, such as
    buffers and process groups, is the executor's.
    """

    job: str
    rank: int
    sections: dict[str, Section]
    schedule: tuple[Slot, ...]
    feeds: tuple[int, ...]
    results: tuple[Key | None, ...]
    watched: tuple[Key | None, ...]
    gradients: tuple[Key, ...]
    finite: Key | None
    is_common: bool
    writes: bool
    fusion: str = "native"
    ranks: tuple[int, ...] = (0,)
