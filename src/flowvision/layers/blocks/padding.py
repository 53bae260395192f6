"""How much to pad: symmetric, or TensorFlow's SAME, whose odd pixel comes last."""

from __future__ import annotations

from typing import Any

import oneflow.nn.functional as F
from oneflow import Tensor
from oneflow.engine.core.errors import ArgumentError

Pair = tuple[int, int]


def get_padding(kernel_size: int, stride: int = 1, dilation: int = 1) -> int:
    """The padding on each side that keeps a size at stride 1."""
    return ((stride - 1) + dilation * (kernel_size - 1)) // 2


def get_same_padding(x: int, k: int, s: int, d: int) -> int:
    """All zeros that SAME adds to a size ``x``, before and after."""
    return max((-(-x // s) - 1) * s + (k - 1) * d + 1 - x, 0)


def is_static_pad(kernel_size: int, stride: int = 1, dilation: int = 1) -> bool:
    """Whether SAME is the same for every size."""
    return stride == 1 and dilation * (kernel_size - 1) % 2 == 0


def pad_same(x: Tensor, k: Pair, s: Pair, d: Pair = (1, 1), value: float = 0) -> Tensor:
    """``x`` with SAME's padding."""
    rows, columns = (get_same_padding(size, k[at], s[at], d[at]) for at, size in enumerate(x.shape[2:]))
    if rows or columns:
        x = F.pad(x, [columns // 2, columns - columns // 2, rows // 2, rows - rows // 2], value=value)
    return x


def get_padding_value(padding: str | int, kernel_size: int, **kwargs: Any) -> tuple[int, bool]:
    """The padding of "same", "valid" or "" (symmetric), and whether it depends on the picture's size; a number
    stays."""
    if not isinstance(padding, str):
        return padding, False
    if padding.lower() == "same":
        return (get_padding(kernel_size, **kwargs), False) if is_static_pad(kernel_size, **kwargs) else (0, True)
    if padding.lower() == "valid":
        return 0, False
    if padding:
        raise ArgumentError(f"padding is 'same', 'valid', '' or a number, got {padding!r}")
    return get_padding(kernel_size, **kwargs), False
