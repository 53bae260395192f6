"""Products with the weights of a decoder: of few rows, one token each, with weights that were laid out for it once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from oneflow.engine.collective import all_reduce

_MOST_ROWS = 64  # beyond it the usual product is as fast
_MOST_BYTES = 1 << 30  # of one weight: a copy of a larger one is not worth its memory


def own_part(parameter: Any) -> Any:
    """A parameter as this rank holds it, without its history; None stays."""
    if parameter is None:
        return None
    return (parameter.to_local() if parameter.is_global else parameter).detach()


class Product:
    """x Wᵀ + b for a weight of (outputs, inputs). With ``sums`` the weight is this rank's part of the inputs, and the
    ranks add up before the bias."""

    def __init__(self, weight: Any, bias: Any, rows: int, sums: tuple[int, ...] = ()) -> None:
        self.weight, self.bias = own_part(weight), own_part(bias)
        self.sums = sums if len(sums) > 1 else ()
        self.outputs = self.weight.shape[0]
        self._late = self.bias if self.sums else None
        self._early = None if self.sums else self.bias
        self._few = few_rows(self.weight, self._early, rows)

    def __call__(self, x: Tensor, is_step: bool) -> Tensor:
        y = self._few(x) if is_step else F.linear(x, self.weight, self._early)
        if self.sums:
            y = all_reduce(y, "sum", self.sums)
            return y if self._late is None else y.add_(self._late)
        return y


def few_rows(weight: Tensor, bias: Tensor | None, rows: int) -> Callable[[Tensor], Tensor]:
    """The product for exactly ``rows`` rows. A weight is read once for each token, and that is what it costs: torch
    reads one as oneDNN lays it out for several rows up to 2.5 times as fast, and for one row a wide one by its
    columns."""
    is_plain = weight.device.type != "cpu" or weight.dtype is not torch.float32 or weight.numel() * 4 > _MOST_BYTES
    if rows < 1 or rows > _MOST_ROWS or is_plain:
        return lambda x: F.linear(x, weight, bias)
    if rows == 1:
        if weight.shape[0] <= weight.shape[1]:
            return lambda x: F.linear(x, weight, bias)
        turned = weight.t().contiguous()
        return (lambda x: torch.mm(x, turned)) if bias is None else (lambda x: torch.addmm(bias, x, turned))
    if not torch.backends.mkldnn.is_available():
        return lambda x: F.linear(x, weight, bias)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), rows)
    product = torch.ops.mkldnn._linear_pointwise.default
    return lambda x: product(x, packed, bias, "none", [], "")
