"""Ops that compute nothing: they pick a result apart or say how a value lies over devices."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from oneflow.ops.row import Family

ROWS = Family()


@ROWS.op("item", precision="clear")
def item(values: tuple[Any, ...], index: int) -> Any:
    """One of the results of an op that has several."""
    return values[index]


@ROWS.op("layout", precision="clear")
def layout(x: Tensor) -> Tensor:
    """The same value; the node carries a hint for its SBP."""
    return x.view_as(x)
