"""Program: what runs. Plain nodes, the names of what goes in, and the places of what comes out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import fx


@dataclass(frozen=True)
class Program:
    """One step of one job on one device.

    Arguments of the graph, in order: the variables, the feeds (inputs, then sources), the step if ``uses_step``, the loss
    scale if ``dynamic_scale``, the ``rates`` of the step. Its output is (results, watched values). Where ``update`` is a second graph, the
    first one has no rates and gives (results, watched values, gradients, whether they are finite or None); the second takes
    the variables, the gradients, the factor that unscales them, and the rates.

    Where ``prepare`` is a graph, it takes the variables, and ``graph`` takes what it gives in their place. One run of it serves every step
    until a variable changes. ``writes`` tells whether a step may change one.
    """

    job: str
    graph: fx.Graph
    variables: tuple[str, ...]
    uses_step: bool
    writes: bool
    dynamic_scale: bool = False
    rates: tuple[Callable[[int], float], ...] = ()
    update: fx.Graph | None = None
    prepare: fx.Graph | None = None
