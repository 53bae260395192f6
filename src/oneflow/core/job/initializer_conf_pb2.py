"""The type of what ``flow.*_initializer`` gives, for annotations."""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["InitializerConf"]


class InitializerConf(Protocol):
    """Anything that draws first values."""

    def draw(self, *args: Any, **kwargs: Any) -> Any:
        """The first values of a variable."""
