"""Pictures with more around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oneflow.array._arguments import apply, blob_of, sequence_of
from oneflow.array._shape import pad
from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.number import as_whole
from oneflow.engine.ir.blob import Blob
from oneflow.engine.ops import array as rows


def sides_of(what: str, padding: Any) -> tuple[Any, ...]:
    """(left, right, top, bottom) from one int or four."""
    sides = sequence_of(f"{what}'s padding", (padding,) * 4 if as_whole(padding) is not None else padding)
    if len(sides) != 4:
        raise ArgumentError(f"{what}'s padding is (left, right, top, bottom), got {padding!r}")
    return sides


def reflection_pad2d(x: Blob, padding: int | Sequence[int], name: str | None = None) -> Blob:
    """x of shape (N, C, H, W) continued by its mirror image; ``padding`` is one int or (left, right, top, bottom)."""
    return apply(rows.reflection_pad2d, x, padding=sides_of("reflection_pad2d", padding), name=name)


def replication_pad2d(x: Blob, padding: int | Sequence[int], name: str | None = None) -> Blob:
    """x of shape (N, C, H, W) continued by its border; ``padding`` is one int or (left, right, top, bottom)."""
    return apply(rows.replication_pad2d, x, padding=sides_of("replication_pad2d", padding), name=name)


def constant_pad2d(x: Blob, padding: int | Sequence[int], constant_value: float = 0, name: str | None = None) -> Blob:
    """x of shape (N, C, H, W) surrounded by ``constant_value``; ``padding`` is one int or (left, right, top,
    bottom)."""
    left, right, top, bottom = sides_of("constant_pad2d", padding)
    if len(blob_of("constant_pad2d", x).shape) != 4:
        raise ArgumentError(f"constant_pad2d takes a blob of rank 4, (N, C, H, W), got {x!r}")
    return pad(x, [(0, 0), (0, 0), (top, bottom), (left, right)], constant_value, name)


def zero_pad2d(x: Blob, padding: int | Sequence[int], name: str | None = None) -> Blob:
    """``constant_pad2d`` with zeros."""
    return constant_pad2d(x, padding, 0, name)
