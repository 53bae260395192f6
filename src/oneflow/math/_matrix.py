"""``flow.math``: functions of the matrices in the last two dimensions."""

from __future__ import annotations

from oneflow.compat.spellings import spelled
from oneflow.engine.ir.blob import Blob, emit
from oneflow.engine.ops import matmul as rows

Number = int | float


@spelled("math.tril")
def tril(x: Blob, diagonal: int = 0, fill_value: Number = 0, name: str | None = None) -> Blob:
    """Each matrix up to and with the given diagonal (0 is the main one, positive ones lie above); ``fill_value`` above
    it."""
    return emit(rows.tril, x, diagonal=diagonal, fill_value=fill_value, name=name)


def fused_scale_tril(
    x: Blob, diagonal: int = 0, fill_value: Number = 0, scale: Number = 1, name: str | None = None
) -> Blob:
    """``tril`` of x * ``scale``; ``fill_value`` is not scaled."""
    return emit(rows.fused_scale_tril, x, diagonal=diagonal, fill_value=fill_value, scale=scale, name=name)
