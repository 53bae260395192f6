"""Parameters that have one name in OneFlow and another in torch: a function takes both."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from oneflow.engine.core.errors import ArgumentError


def also(**other: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes a function take keywords by other names too: ``other`` has for each of them the function's own."""

    def named(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **_renamed(function.__name__, kwargs, other) if kwargs else kwargs)

        return called

    return named


def _renamed(function: str, kwargs: dict[str, Any], other: dict[str, str]) -> dict[str, Any]:
    for name in other.keys() & kwargs.keys():
        own = other[name]
        if own in kwargs:
            raise ArgumentError(f"{function}: {name} and {own} are two names of one parameter; give one of them")
        kwargs[own] = kwargs.pop(name)
    return kwargs
