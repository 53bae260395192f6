"""``global_mode``: within it, functions that make tensors make global ones."""

from __future__ import annotations

import contextvars
from typing import Any, NamedTuple

from oneflow.core.errors import GlobalTensorError
from oneflow.global_tensor.placement import placement


class Mode(NamedTuple):
    """Where and how tensors are made."""

    place: placement
    sbp: Any


_CURRENT: contextvars.ContextVar[Mode | None] = contextvars.ContextVar("global_mode", default=None)


def current_mode() -> Mode | None:
    """Where and how tensors are made at present; None where they are local."""
    return _CURRENT.get()


def is_in_global_mode() -> bool:
    return _CURRENT.get() is not None


def enter(mode: Mode | None) -> contextvars.Token[Mode | None]:
    if mode is not None and not isinstance(mode.place, placement):
        raise GlobalTensorError(f"global_mode(True, placement=, sbp=) takes a flow.placement and an SBP for each of its axes, got {mode.place!r}")
    return _CURRENT.set(mode)


def leave(token: contextvars.Token[Mode | None]) -> None:
    _CURRENT.reset(token)
