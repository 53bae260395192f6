"""``flow.distribute``: how a tensor lies over the devices of a placement."""

from __future__ import annotations

from typing import Any

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.sbp import AUTO, BROADCAST, Sbp
from oneflow.engine.core.sbp import split as _split
from oneflow.scope import View, consistent_view, consistent_view_enabled, mirrored_view, mirrored_view_enabled

__all__ = [
    "assert_is_valid_distribute",
    "auto",
    "broadcast",
    "consistent_strategy",
    "consistent_strategy_enabled",
    "mirrored_strategy",
    "mirrored_strategy_enabled",
    "split",
]


def split(axis: int) -> Sbp:
    """Each device holds a slice of dimension ``axis``."""
    return _split(axis)


def broadcast() -> Sbp:
    """Each device holds the whole tensor."""
    return BROADCAST


def auto() -> Sbp:
    """The compiler chooses."""
    return AUTO


def assert_is_valid_distribute(distribute: Any) -> None:
    """Refuses anything that is not made by ``split``, ``broadcast`` or ``auto``."""
    if not isinstance(distribute, Sbp):
        raise ArgumentError(f"not a distribute: {distribute!r}; use flow.distribute.split(axis), broadcast() or auto()")


def mirrored_strategy() -> View:
    """The earlier name of ``flow.scope.mirrored_view``."""
    return mirrored_view()


def consistent_strategy() -> View:
    """The earlier name of ``flow.scope.consistent_view``."""
    return consistent_view()


def mirrored_strategy_enabled() -> bool:
    """The earlier name of ``flow.scope.mirrored_view_enabled``."""
    return mirrored_view_enabled()


def consistent_strategy_enabled() -> bool:
    """The earlier name of ``flow.scope.consistent_view_enabled``."""
    return consistent_view_enabled()
