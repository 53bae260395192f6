"""The session that job functions belong to."""

from __future__ import annotations

from oneflow.engine.job.function import clear_default_session, default_session
from oneflow.engine.job.session import Session

__all__ = ["GetDefaultSession", "TryCloseDefaultSession"]


def GetDefaultSession() -> Session:
    """The session of the job functions that are defined now."""
    return default_session()


def TryCloseDefaultSession() -> None:
    """``flow.clear_default_session()``."""
    clear_default_session()
