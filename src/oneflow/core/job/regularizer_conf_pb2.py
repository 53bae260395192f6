"""The type of what ``flow.regularizers`` gives, for annotations."""

from __future__ import annotations

from typing import Protocol

__all__ = ["RegularizerConf"]


class RegularizerConf(Protocol):
    """L1 and L2 that are added to a variable's gradient."""

    l1: float
    l2: float
