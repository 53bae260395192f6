"""Linear layers that tensor parallelism cuts by their outputs or by their inputs."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from libai.layers.laying import B, Init, S, at_layer, laid, new_parameter, skips_init
from libai.utils import distributed as dist
from oneflow import nn
from oneflow.engine.core.errors import ArgumentError, nearest

WAYS = ("col", "row", "data")


class ParallelWayError(ArgumentError, KeyError):
    """A way to cut a layer that there is not."""

    def __str__(self) -> str:
        return str(self.args[0])


def require_way(parallel: str) -> None:
    """Refuses ways to cut a layer other than the three."""
    if parallel not in WAYS:
        raise ParallelWayError(
            f'parallel is "col" (cut by outputs), "row" (by inputs) or "data" (not cut), got {parallel!r}.{nearest(str(parallel), WAYS)}'
        )


class Linear1D(nn.Module):
    """x Wᵀ + b with a weight of shape (out, in).

    ``parallel="col"`` cuts weight and bias by outputs, and the last dim of the result is cut; ``"row"`` cuts the weight
    by inputs, and the result is whole along the tensor axis; ``"data"`` cuts nothing. With ``skip_bias_add`` the result
    is ``(x Wᵀ, b)``.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        parallel: str = "data",
        init_method: Init = nn.init.xavier_normal_,
        skip_bias_add: bool = False,
        dtype: torch.dtype = torch.float32,
        *,
        layer_idx: int = 0,
    ) -> None:
        super().__init__()
        require_way(parallel)
        self.in_features, self.out_features, self.parallel = in_features, out_features, parallel
        self.skip_bias_add, self.layer_idx = skip_bias_add, layer_idx
        of_weight, of_bias = {"col": (S(0), S(0)), "row": (S(1), B), "data": (B, B)}[parallel]
        init = nn.init.zeros_ if skips_init() else init_method
        self.weight = new_parameter((out_features, in_features), init, layer_idx, of_weight, dtype)
        self.bias: Any = new_parameter((out_features,), nn.init.zeros_, layer_idx, of_bias, dtype) if bias else None

    def forward(self, x: Any) -> Any:
        x = at_layer(x, self.layer_idx)
        added = None if self.skip_bias_add else self.bias
        if self.parallel == "row" and x.is_global and dist.get_tensor_parallel_size() > 1:
            # The products are terms of a sum: the bias is added once, behind it.
            y = laid(F.linear(laid(x, S(x.ndim - 1)), self.weight))
            y = y if added is None else y + added
        else:
            y = F.linear(laid(x), self.weight, added)
        return (y, self.bias) if self.skip_bias_add else y

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, parallel={self.parallel}"


Linear = Linear1D
