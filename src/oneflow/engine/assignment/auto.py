"""Auto parallel: the layouts of parameters, inputs and all between them, and the axes of the devices, chosen by the
cost of the step.

``infer`` is the search; here it is asked several times, for each way to lay out the devices on axes and for each use of
an axis: by the batch, by parameters that it may split as it likes, by both, by keeping parameters in parts. Where what
it finds holds more memory than it may, it is asked again with a price on memory, higher each time. What costs least of
all that fits is taken, so it is never worse than plain data parallel, which is tried too. A try ends as soon as it is
sure to cost more than the best before it (branch and bound).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.sharding import cost
from oneflow.engine.sharding.mesh import Mesh

if TYPE_CHECKING:
    from oneflow.engine.assignment.infer import (
        Estimate,  # with it come the rules of every op, which one rank does not need
    )

Use = Literal["data", "tensor", "storage", "free"]
"""What an axis is for: "data" splits the batch and leaves parameters whole; "tensor" leaves the batch whole and splits
parameters as it likes; "storage" splits the batch, and parameters along dim 0 where they are kept; "free" splits
whatever it likes."""

_INNERMOST = (2, 4, 8, 16)  # as many devices as the inner of two axes may have
_PRICES_OF_MEMORY = (0.05, 0.4, 3.0, 25.0)  # of all that is held, as a multiple of what the whole step costs


@dataclass(frozen=True)
class AutoParallel:
    """What the search may choose: the layouts of the ``free`` variables, and of ``meshes`` the one that a step runs on
    (none: that it has). ``memory_limit`` is in bytes for each device. ``ignores_hints``: what ``to_global`` says in a
    step does not count."""

    free: frozenset[str]
    meshes: tuple[Mesh, ...] = ()
    memory_limit: int | None = None
    prices: cost.Prices = cost.USUAL
    ignores_hints: bool = False


@dataclass(frozen=True)
class Candidate:
    """What is tried: the use of each axis of a mesh, or of those that the step has where that is None; and the price of
    a byte of memory."""

    mesh: Mesh | None
    uses: tuple[Use, ...]
    held: float = 0.0

    def use(self, axis: int) -> Use:
        return self.uses[min(axis, len(self.uses) - 1)]

    @property
    def is_plain(self) -> bool:
        return set(self.uses) == {"data"}

    def __str__(self) -> str:
        if self.is_plain:
            return "data parallel"
        uses = (
            [f"{use} {extent}" for use, extent in zip(self.uses, self.mesh.axes)]
            if self.mesh is not None
            else list(self.uses)
        )
        return f"{' x '.join(uses)} parallel"


@dataclass(frozen=True)
class Tried:
    """A candidate with what it would cost, and the memory that a device would need."""

    candidate: Candidate
    estimate: Estimate
    memory: int


@dataclass(frozen=True)
class Chosen:
    """What a search has chosen, beside plain data parallel."""

    best: Tried
    data_parallel: Tried
    memory_limit: int | None

    def __str__(self) -> str:
        plain, best = self.data_parallel, self.best
        limit = "" if self.memory_limit is None else f"; the limit is {_bytes(self.memory_limit)}"
        other = "" if best.candidate.is_plain else f"; data parallel: {_figures(plain)}"
        return f"{best.candidate}: {_figures(best)}{other}{limit}"


def _figures(tried: Tried) -> str:
    return (
        f"cost {tried.estimate.total:.3g} ({tried.estimate.moved:.3g} for bytes moved), {_bytes(tried.memory)} a device"
    )


def _bytes(count: int) -> str:
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.3g} {unit}"


def meshes_of(ranks: tuple[int, ...]) -> tuple[Mesh, ...]:
    """The ways to lay out ranks on one axis and on two."""
    inner = [size for size in _INNERMOST if size < len(ranks) and len(ranks) % size == 0]
    return (Mesh(ranks, (len(ranks),)), *(Mesh(ranks, (len(ranks) // size, size)) for size in inner))


Attempt = Callable[[Candidate, float], "Tried | None"]
"""Tries a candidate; None where its total is sure to be above a limit."""


def search(job: str, auto: AutoParallel, attempt: Attempt) -> Chosen:
    """The best of all candidates, of equal ones the first. Refuses where none fits into the limit."""
    meshes: tuple[Mesh | None, ...] = auto.meshes or (None,)
    plain = _whole(attempt, Candidate(meshes[0], ("data",)))
    candidates = [Candidate(mesh, uses) for mesh in meshes for uses in _uses(mesh)]
    tried = [plain, *_bounded(plain, candidates, auto, attempt)]
    if not any(_fits(one, auto) for one in tried):
        for candidate in candidates:
            tried += _with_less_memory(plain, candidate, auto, attempt)
    fitting = [one for one in tried if _fits(one, auto)]
    if not fitting:
        least = min(one.memory for one in tried)
        assert auto.memory_limit is not None
        raise ArgumentError(
            f"{job}: no layout that was found fits into {_bytes(auto.memory_limit)} a device "
            f"(set_auto_parallel_memory_limit({auto.memory_limit})): the least was {_bytes(least)}, data "
            f"parallel needs {_bytes(plain.memory)}; raise the limit, use more devices, a smaller batch, more "
            f"accumulation steps, or checkpoint activations"
        )
    return Chosen(min(fitting, key=lambda one: one.estimate.total), plain, auto.memory_limit)


def _uses(mesh: Mesh | None) -> list[tuple[Use, ...]]:
    """The uses of axes that are tried. Of two axes the outer has the batch: its ranks meet less often."""
    alone: list[tuple[Use, ...]] = [("tensor",), ("storage",), ("free",)]
    together: list[tuple[Use, ...]] = [("data", "tensor"), ("storage", "tensor")]
    if mesh is None:
        return alone + together
    return alone if len(mesh.axes) == 1 else together


def _whole(attempt: Attempt, candidate: Candidate) -> Tried:
    tried = attempt(candidate, math.inf)
    assert tried is not None
    return tried


def _bounded(plain: Tried, candidates: Sequence[Candidate], auto: AutoParallel, attempt: Attempt) -> list[Tried]:
    """Those that are no dearer than the best of those tried before them, in their order. The last are tried first: with
    two axes, the inner of many devices, as a rule least is moved, and others end early."""
    found: list[Tried] = []
    limit = plain.estimate.total if _fits(plain, auto) else math.inf
    for candidate in reversed(candidates):
        tried = attempt(candidate, limit)
        if tried is not None:
            found.insert(0, tried)
            limit = min(limit, tried.estimate.total) if _fits(tried, auto) else limit
    return found


def _fits(tried: Tried, auto: AutoParallel) -> bool:
    return auto.memory_limit is None or tried.memory <= auto.memory_limit


def _with_less_memory(plain: Tried, candidate: Candidate, auto: AutoParallel, attempt: Attempt) -> Iterator[Tried]:
    """Tries at ever higher prices of memory, to the first that fits."""
    for factor in _PRICES_OF_MEMORY:
        found = _whole(
            attempt, Candidate(candidate.mesh, candidate.uses, factor * plain.estimate.total / max(plain.memory, 1))
        )
        yield found
        if _fits(found, auto):
            return
