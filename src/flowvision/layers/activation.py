"""Piecewise linear forms of sigmoid and swish."""

from __future__ import annotations

import oneflow.nn as nn


class hard_sigmoid(nn.Hardsigmoid):
    """relu6(x + 3) / 6."""

    def __init__(self, inplace: bool = True) -> None:
        super().__init__(inplace)


class hard_swish(nn.Hardswish):
    """x * relu6(x + 3) / 6."""

    def __init__(self, inplace: bool = True) -> None:
        super().__init__(inplace)
