"""What an op row is, and how a family file makes one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from oneflow.engine.core.errors import ArgumentError


@dataclass(frozen=True, eq=False)
class Op:
    """One op.

    ``compute(*tensors, **attributes)`` returns a tensor or a tuple of tensors.
    ``creates``: it makes a tensor out of nothing and takes ``device=``.
    ``random``: it takes ``seed=`` and ``step=`` (an int64 tensor of shape (1,)).
    ``precision``: its list in automatic mixed precision: "white", "gray", "clear" or None (always float32).
    """

    name: str
    compute: Callable[..., Any]
    creates: bool = False
    random: bool = False
    precision: str | None = None

    @property
    def label(self) -> str:
        """The prefix of automatic op names: ``math.reduce_sum`` gives ``ReduceSum``."""
        return "".join(word.capitalize() for word in self.name.rsplit(".", 1)[-1].split("_"))

    @property
    def __name__(self) -> str:
        return self.name.replace(".", "_")

    def __call__(self, *args: Any, **attributes: Any) -> Any:
        return self.compute(*args, **attributes)

    def __repr__(self) -> str:
        return self.name


class Family:
    """The rows of one file."""

    def __init__(self) -> None:
        self._rows: dict[str, Op] = {}

    def op(self, name: str, **columns: Any) -> Callable[[Callable[..., Any]], Op]:
        """Decorator: makes the function below it the ``compute`` of a new row."""

        def make(compute: Callable[..., Any]) -> Op:
            if name in self._rows:
                raise ArgumentError(f"there are two op rows called {name!r}")
            self._rows[name] = Op(name, compute, **columns)
            return self._rows[name]

        return make

    def add(self, name: str, compute: Callable[..., Any], **columns: Any) -> Op:
        """A row whose compute is an existing function."""
        return self.op(name, **columns)(compute)

    def __iter__(self) -> Iterator[Op]:
        return iter(self._rows.values())


def require(condition: bool, reason: str) -> None:
    """Refuses an op's inputs. The tracer adds the op, its input shapes and the user's line."""
    if not condition:
        raise ArgumentError(reason)
