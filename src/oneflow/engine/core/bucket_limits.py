"""How much of the gradients is summed over ranks at once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BucketLimits:
    """What a bucket of gradients holds at most: ``bytes``, or one tensor that is larger, and ``tensors`` (None: any
    number)."""

    bytes: int = 16 * 2**20
    tensors: int | None = None
