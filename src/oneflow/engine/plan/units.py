"""Numbers as people read them."""

from __future__ import annotations

from collections.abc import Sequence


def bytes_text(count: int) -> str:
    """Three digits and a binary unit: "97.5 MiB"."""
    return _scaled(count, 1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))


def flops_text(count: int) -> str:
    """Three digits and a decimal unit: "8.17 GFLOP"."""
    return _scaled(count, 1000, ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"))


def _scaled(count: int, step: int, units: Sequence[str]) -> str:
    value, place = float(count), 0
    while (
        value >= step - 0.5 and place < len(units) - 1
    ):  # what would round up to a whole step is written as the next unit
        value, place = value / step, place + 1
    digits = 0 if place == 0 else 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f} {units[place]}"
