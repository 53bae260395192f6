"""``global_mode``: within it, functions that make tensors make global ones."""

from __future__ import annotations

import contextvars
from typing import Any, NamedTuple

from oneflow.engine.core.errors import GlobalTensorError
from oneflow.engine.global_tensor.placement import placement
from oneflow.engine.global_tensor.sbp import layouts_of


class Mode(NamedTuple):
    """Where and how tensors are made."""

    place: placement
    sbp: Any


_CURRENT: contextvars.ContextVar[Mode | None] = contextvars.ContextVar("global_mode", default=None)


def require(mode: Mode) -> None:
    """Refuses a mode without a placement, or with layouts that do not fit it."""
    if not isinstance(mode.place, placement) or mode.sbp is None:
        raise GlobalTensorError(
            f"global_mode(True, placement=, sbp=) takes a flow.placement and an SBP for each of its axes, got "
            f"{mode.place!r}, {mode.sbp!r}"
        )
    layouts_of(mode.sbp, mode.place.hierarchy)


def current_mode() -> Mode | None:
    """Where and how tensors are made at present; None where they are local."""
    return _CURRENT.get()


def is_in_global_mode() -> bool:
    return _CURRENT.get() is not None


def enter(mode: Mode | None) -> contextvars.Token[Mode | None]:
    return _CURRENT.set(mode)


def leave(token: contextvars.Token[Mode | None]) -> None:
    _CURRENT.reset(token)
