"""``flow.util``: names for what a job makes more than once."""

from __future__ import annotations

import itertools

__all__ = ["unique_str"]

_COUNT = itertools.count()


def unique_str(prefix: str = "") -> str:
    """``prefix`` with a number that no other call of this process gets."""
    return f"{prefix}{next(_COUNT)}"
