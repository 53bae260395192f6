"""Ops that compute nothing: they pick a result apart or say how a value lies over devices."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from oneflow.engine.ops.row import Family

ROWS = Family()


@ROWS.op("item", precision="clear")
def item(values: tuple[Any, ...], index: int) -> Any:
    """One of the results of an op that has several."""
    return values[index]


class _Layout(torch.autograd.Function):
    """The identity, which asks for layouts of its value and of its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, forward: str, backward: str) -> Tensor:
        ctx.layouts = backward, forward
        return torch.ops.oneflow.layout(x, forward, backward)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None, None]:
        (gradient,) = gradients
        return torch.ops.oneflow.layout(gradient, *ctx.layouts), None, None


@ROWS.op("layout", precision="clear")
def layout(x: Tensor, *, forward: str = "", backward: str = "") -> Tensor:
    """The same value, laid out over its placement as ``forward`` says ("S(0)", or "S(0),B" for two axes), its gradient
    as ``backward`` says; "" leaves it open."""
    return _Layout.apply(x, forward, backward)


# The library object must live as long as the op is registered.
_LIBRARY = torch.library.Library("oneflow", "FRAGMENT")
_LIBRARY.define("layout(Tensor x, str forward, str backward) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
_LIBRARY.impl("layout", lambda x, forward, backward: x.clone(), "CompositeExplicitAutograd")
_LIBRARY.impl("layout", lambda x, forward, backward: torch.empty_like(x), "Meta")
