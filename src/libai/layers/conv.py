"""The linear layer of GPT-2, with its weight the other way round."""

from __future__ import annotations

from typing import Any

import torch

from libai.layers.laying import B, Init, S, at_layer, laid, new_parameter, skips_init
from libai.layers.linear import require_way
from libai.utils import distributed as dist
from oneflow import nn


class Conv1D(nn.Module):
    """x W + b with a weight of shape (in, out); ``parallel`` and ``skip_bias_add`` are those of ``Linear``."""

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
        of_weight, of_bias = {"col": (S(1), B), "row": (S(0), S(0)), "data": (B, B)}[parallel]
        init = nn.init.zeros_ if skips_init() else init_method
        self.weight = new_parameter((in_features, out_features), init, layer_idx, of_weight, dtype)
        self.bias: Any = new_parameter((out_features,), nn.init.zeros_, layer_idx, of_bias, dtype) if bias else None

    def forward(self, x: Any) -> Any:
        x = at_layer(x, self.layer_idx)
        if self.parallel == "row" and x.is_global and dist.get_tensor_parallel_size() > 1:
            y = laid(torch.matmul(laid(x, S(x.ndim - 1)), self.weight))
        else:
            y = torch.matmul(laid(x), self.weight)
        if self.skip_bias_add:
            return y, self.bias
        return y if self.bias is None else y + self.bias

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, parallel={self.parallel}"
