"""Gradients that are large matrix products and are updated some rows at a time."""

from __future__ import annotations

ROWS_BYTES = 4 * 2**20  # bytes of a product's rows that are computed at a time


def is_large_product(size: int, is_linear: bool) -> bool:
    """Whether a gradient product of ``size`` bytes should not be materialized: it has several times ``ROWS_BYTES``, or
    its update ``is_linear``, so that no row has to be stored."""
    return size >= ROWS_BYTES * (1 if is_linear else 2)
