"""``flow.system``: ops with an effect beyond their result."""

from __future__ import annotations

from oneflow import array
from oneflow.engine.ir.blob import Blob

__all__ = ["assign"]


def assign(
    ref: Blob, value: Blob, validate_shape: bool | None = None, use_locking: bool | None = None, name: str | None = None
) -> Blob:
    """``flow.assign``. Shapes are always compared and nothing needs a lock, so the two flags change nothing."""
    return array.assign(ref, value, name=name)
