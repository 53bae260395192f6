"""Arithmetic of widths."""

from __future__ import annotations


def make_divisible(v: float, divisor: int = 8, min_value: int | None = None, round_limit: float = 0.9) -> int:
    """The nearest multiple of ``divisor``, at least ``min_value``, and not below ``round_limit`` of ``v``."""
    result = max(min_value or divisor, int(v + divisor / 2) // divisor * divisor)
    return result + divisor if result < round_limit * v else result
