"""``flow.deprecated``: spellings of 2019. Starting workers by hand is not needed, so these do nothing."""

from __future__ import annotations

from oneflow.scope import namespace as variable_scope

__all__ = ["delete_worker", "init_worker", "variable_scope"]


def init_worker(scp_binary: bool = True, use_uuid: bool = True) -> None:
    """Does nothing: a program starts its own workers."""


def delete_worker() -> None:
    """Does nothing: workers end with their program."""
