"""By which tier of fusion the steps behind a checkpoint ran: one ``System-Fusion-<job>`` per train job or graph, the
word as uint8 numbers.

It is left out where it is the default. Kernels round otherwise than the ops they stand for, so a run that goes on in
another tier is not bit by bit the one that was never stopped.
"""

from __future__ import annotations

import warnings

import numpy as np

from oneflow.engine.core.fusion_setting import DEFAULT, TIERS

PREFIX = "System-Fusion-"


def note_of(tier: str) -> np.ndarray | None:
    """A tier as a value to be saved; None where nothing has to be said."""
    return None if tier == DEFAULT else np.frombuffer(tier.encode(), np.uint8)


def compare(name: str, note: np.ndarray | None, tier: str) -> None:
    """Tells of a job or graph that goes on in another tier than the one it was saved in. ``note`` is what the
    checkpoint says of it."""
    saved = DEFAULT if note is None else note.tobytes().decode(errors="replace")
    if saved != tier and saved in TIERS:
        warnings.warn(
            f"{name} was saved by steps of fusion {saved!r} and goes on with {tier!r}: values agree but for rounding",
            stacklevel=3,
        )
