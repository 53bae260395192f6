"""How a file of emitters says which op rows ONNX can express, and which it cannot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.onnx.builder import Wire

Emitter = Callable[..., Wire | Sequence[Wire]]
"""Takes a Builder and then what the row's ``compute`` takes, with an Operand for every tensor; gives what ``compute``
gives."""

E = TypeVar("E", bound=Emitter)


class Emitters:
    """The emitters of one file of ``oneflow.engine.ops``, by row name; ``reasons`` has the rows that ONNX cannot express."""

    def __init__(self) -> None:
        self.rows: dict[str, Emitter] = {}
        self.reasons: dict[str, str] = {}

    def row(self, name: str) -> Callable[[E], E]:
        """Decorator: makes the function below it the emitter of the row ``name``."""

        def add(emitter: E) -> E:
            self.add(name, emitter)
            return emitter

        return add

    def add(self, name: str, emitter: Emitter) -> None:
        self._claim(name)
        self.rows[name] = emitter

    def cannot(self, name: str, reason: str) -> None:
        """Says why ONNX cannot express the row ``name``."""
        self._claim(name)
        self.reasons[name] = reason

    def plain(self, name: str, kind: str) -> None:
        """A row that is one ONNX node of the same inputs."""
        self.add(name, lambda b, *inputs: b.node(kind, *inputs))

    def _claim(self, name: str) -> None:
        if name in self.rows or name in self.reasons:
            raise ArgumentError(f"there are two emitters of the op row {name!r}")
