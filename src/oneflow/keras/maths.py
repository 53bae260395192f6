"""``flow.keras.maths``."""

from __future__ import annotations

from oneflow.engine.ir.blob import Blob, emit
from oneflow.engine.ops import elementwise as rows

__all__ = ["add"]


def add(x: Blob | float, y: Blob | float) -> Blob:
    """x + y."""
    return emit(rows.add, x, y)
