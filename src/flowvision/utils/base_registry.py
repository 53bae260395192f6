"""Objects by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from oneflow.engine.core.errors import ArgumentError, nearest


class Registry(Iterable[tuple[str, Any]]):
    """Functions and classes that register themselves: ``@LAYERS.register()``, or ``LAYERS.register(obj)``;
    ``LAYERS.get(name)`` gives them back."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._objects: dict[str, Any] = {}

    def register(self, obj: Any = None) -> Any:
        if obj is None:
            return self._add
        return self._add(obj)

    def _add(self, obj: Callable[..., Any]) -> Callable[..., Any]:
        name = obj.__name__
        if name in self._objects:
            raise ArgumentError(f"{name!r} is in the registry {self._name!r} already")
        self._objects[name] = obj
        return obj

    def get(self, name: str) -> Any:
        if name not in self._objects:
            raise KeyError(f"the registry {self._name!r} has no {name!r}.{nearest(name, self._objects)}")
        return self._objects[name]

    def __contains__(self, name: str) -> bool:
        return name in self._objects

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self._objects.items())

    def __repr__(self) -> str:
        return f"Registry of {self._name}: {', '.join(self._objects)}"
