"""Names that OneFlow has and this package has not: asking for one is an error that says what to use instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from oneflow.engine.core.errors import AbsentNameError, nearest


def absent(
    namespace: str, instead: Mapping[str, str], present: Callable[[], Mapping[str, Any]]
) -> Callable[[str], Any]:
    """A module's ``__getattr__``. ``instead`` has for every absent name why it is so and what to use; ``present`` gives
    the module's own names, of which the nearest is told for a name that nobody knows."""

    def find(name: str) -> Any:
        if name in instead:
            raise AbsentNameError(f"{namespace}.{name} is not there: {instead[name]}")
        known = [other for other in present() if not other.startswith("_")]
        raise AttributeError(f"module {namespace!r} has no attribute {name!r}.{nearest(name, known)}")

    return find
