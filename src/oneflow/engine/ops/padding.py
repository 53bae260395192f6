"""Padding of convolutions and pools: from what users write to explicit zeros before and after each spatial dimension.

A window starts at every stride-th place of the padded input, as long as it fits. ``kernel`` below is the window's whole
extent, dilation included.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.number import wholes
from oneflow.engine.ops.row import require

Pads = tuple[tuple[int, int], ...]

_NAMES = ("SAME", "SAME_LOWER", "SAME_UPPER", "VALID")


def extent(kernel: int, dilation: int) -> int:
    """How many places a dilated kernel covers."""
    return (kernel - 1) * dilation + 1


def same(size: int, kernel: int, stride: int, lower: bool) -> tuple[int, int]:
    """The pads that give ceil(size / stride) windows; with ``lower`` the odd one comes before, else after."""
    total = max(0, (-(-size // stride) - 1) * stride + kernel - size)
    small, large = total // 2, total - total // 2
    return (large, small) if lower else (small, large)


def count(size: int, kernel: int, stride: int, before: int, after: int) -> int:
    """How many windows fit; not positive if none does."""
    return (size + before + after - kernel) // stride + 1


def explicit(
    padding: Any,
    sizes: Sequence[int],
    kernels: Sequence[int],
    strides: Sequence[int],
    channels_last: bool,
    same_is_upper: bool = False,
) -> Pads:
    """The pads that ``padding`` stands for: one of the names, in any case, or a list with an int or (before, after) for
    each dimension of the blob in data_format order."""
    if not isinstance(padding, str):
        return _listed(padding, len(sizes), channels_last)
    word = padding.upper()
    if word not in _NAMES:
        raise ArgumentError(f"padding is one of {', '.join(_NAMES)} or a list of (before, after), got {padding!r}")
    if word == "VALID":
        return ((0, 0),) * len(sizes)
    lower = word == "SAME_LOWER" or (word == "SAME" and not same_is_upper)
    return tuple(same(n, k, s, lower) for n, k, s in zip(sizes, kernels, strides))


def _listed(padding: Any, dims: int, channels_last: bool) -> Pads:
    if not isinstance(padding, (list, tuple)) or len(padding) != dims + 2:
        raise ArgumentError(
            f"a list of paddings has one entry for each of the {dims + 2} dimensions in data_format order, got "
            f"{padding!r}"
        )
    pairs = [_pair(entry) for entry in padding]
    outer = (pairs[0], pairs[-1 if channels_last else 1])
    if any(pair != (0, 0) for pair in outer):
        raise ArgumentError(f"batch and channel are not padded: their entries must be 0 or (0, 0), got {padding!r}")
    return tuple(pairs[1:-1] if channels_last else pairs[2:])


def _pair(entry: Any) -> tuple[int, int]:
    pair = wholes(entry if isinstance(entry, (list, tuple)) else (entry, entry))
    if pair is None or len(pair) != 2 or min(pair) < 0:
        raise ArgumentError(f"a padding entry is an int or a pair (before, after) of ints, 0 or more; got {entry!r}")
    return pair[0], pair[1]


def ceiled(pads: Pads, sizes: Sequence[int], kernels: Sequence[int], strides: Sequence[int]) -> Pads:
    """The pads enlarged so that a last, partly covered window counts too, if it starts inside the input or the pad
    before it."""
    return tuple((b, a + _missing(n, k, s, b, a)) for n, k, s, (b, a) in zip(sizes, kernels, strides, pads))


def _missing(size: int, kernel: int, stride: int, before: int, after: int) -> int:
    start = count(size, kernel, stride, before, after) * stride
    missing = start + kernel - (size + before + after)
    return missing if 0 < missing < stride and start < size + before else 0


def symmetric(
    pads: Pads, sizes: Sequence[int], kernels: Sequence[int], strides: Sequence[int]
) -> tuple[int, ...] | None:
    """One number a dimension that gives the same windows when used on both sides, or None if there is none.

    Stride 2, kernel 3 and an even size need (1, 0): there (1, 1) reads the same elements, its last zero is never
    reached.
    """
    fits = all(count(n, k, s, b, b) == count(n, k, s, b, a) for n, k, s, (b, a) in zip(sizes, kernels, strides, pads))
    return tuple(b for b, _ in pads) if fits else None


def pad(x: Tensor, pads: Pads, value: float = 0.0) -> Tensor:
    """x with ``value`` around its last dimensions."""
    return F.pad(x, [n for pair in reversed(pads) for n in pair], value=value)


def require_windows(pads: Pads, sizes: Sequence[int], kernels: Sequence[int], strides: Sequence[int]) -> None:
    """Refuses an input too small for one window."""
    for n, k, s, (b, a) in zip(sizes, kernels, strides, pads):
        require(count(n, k, s, b, a) > 0, f"a window of {k} does not fit a dimension of {n} padded by ({b}, {a})")
