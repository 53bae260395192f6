"""How a file of emitters says which aten ops ONNX can express, and which it cannot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.onnx.builder import Wire

Made = Wire | Sequence[Wire | None]
"""What an emitter gives: one wire, or one for each result of an op that has several, with None for those that ONNX
cannot give."""

AtenEmit = Callable[..., Made]
E = TypeVar("E", bound=AtenEmit)


@dataclass(frozen=True)
class AtenRow:
    """The emitter of one overload: takes an AtenBuilder and the op's own arguments, with an Operand for every tensor.

    ``follows`` names the parameters of the emitter that may be numbers which follow the batch (``Times``); others are
    refused then.
    """

    emit: AtenEmit
    follows: tuple[str, ...] = ()


class AtenEmitters:
    """The emitters of one file by overload, as ``add.Tensor``; ``reasons`` has the overloads that ONNX cannot
    express."""

    def __init__(self) -> None:
        self.rows: dict[str, AtenRow] = {}
        self.reasons: dict[str, str] = {}

    def row(self, *names: str, follows: Sequence[str] = ()) -> Callable[[E], E]:
        """Decorator: makes the function below it the emitter of these overloads."""

        def add(emit: E) -> E:
            for name in names:
                self.add(name, emit, follows)
            return emit

        return add

    def add(self, name: str, emit: AtenEmit, follows: Sequence[str] = ()) -> None:
        self._claim(name)
        self.rows[name] = AtenRow(emit, tuple(follows))

    def cannot(self, reason: str, *names: str) -> None:
        """Says why ONNX cannot express these overloads, and what to do."""
        for name in names:
            self._claim(name)
            self.reasons[name] = reason

    def _claim(self, name: str) -> None:
        if name in self.rows or name in self.reasons:
            raise ArgumentError(f"there are two emitters of the aten op {name!r}")


def pair(value: Any, count: int) -> list[int]:
    """A number or a list of one for every dim, as torch's windows are given."""
    numbers = [value] if isinstance(value, int) else list(value)
    return numbers * count if len(numbers) == 1 else numbers


def place(dim: int, rank: int) -> int:
    """A dim counted from the front; a number alone has one dim for this purpose."""
    return dim % max(rank, 1)
