"""What random graphs and random jobs have in common: programs as plain data, verdicts, and the reduction of a failing
program."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

Choice = tuple[str, int]
"""The name of a layer's row and the seed of its options and initial values."""


class Unfit(Exception):
    """A layer cannot take what the layers before it give."""


@dataclass(frozen=True)
class Verdict:
    """What the comparison of one program has given.

    Attributes:
        seed: The number of the program.
        status: ``"same"``, ``"different"``, ``"error"`` (it failed on ranks alone), ``"invalid"`` (the reference
            failed or is not finite) or ``"unstable"`` (rounding alone changes its results, so nothing is compared).
        detail: The value that differs most, or the error.
        difference: The largest relative difference.
        tolerance: The difference that is allowed.
    """

    seed: int
    status: str
    detail: str = ""
    difference: float = 0.0
    tolerance: float = 0.0

    @property
    def is_failure(self) -> bool:
        """Whether the program shows a defect."""
        return self.status in ("different", "error")


@dataclass(frozen=True)
class Program:
    """A random program as plain data. Subclasses add their settings as fields.

    Attributes:
        seed: The number that the program was drawn from; it also decides the data.
        layers: The layers in order.
    """

    seed: int
    layers: tuple[Choice, ...]

    def to_json(self) -> str:
        """Returns the program as text that ``from_json`` reads."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Any:
        """Returns the program that ``to_json`` wrote."""
        fields = json.loads(text)
        fields["layers"] = [tuple(layer) for layer in fields["layers"]]
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()})

    def simpler(self) -> Iterator[Any]:
        """Yields programs with one setting simpler than here."""
        raise NotImplementedError


P = TypeVar("P", bound=Program)


def reduced(program: P, fails: Callable[[P], bool]) -> P:
    """Returns the smallest program that still fails.

    Drops runs of layers, long ones first, and simplifies settings until nothing more can go.

    Args:
        program: A program that fails.
        fails: Whether another program fails as this one does; programs that cannot be built do not.
    """
    while True:
        candidate = next((other for other in _smaller(program) if fails(other)), None)
        if candidate is None:
            return program
        program = candidate


def _smaller(program: P) -> Iterator[P]:
    count = len(program.layers)
    for length in range(count, 0, -1):
        for start in range(count - length + 1):
            yield dataclasses.replace(program, layers=program.layers[:start] + program.layers[start + length :])
    yield from program.simpler()
