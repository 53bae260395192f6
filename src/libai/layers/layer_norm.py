"""Norms over the last dims. Their weights lie whole on every rank of a stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from libai.layers.laying import at_layer, new_parameter
from oneflow import nn


class LayerNorm(nn.Module):
    """Layer norm. With ``bias=False`` the bias is in the state dict, stays zero and is not trained; without
    ``elementwise_affine`` there are no parameters."""

    decays_as_norm = True  # weight_decay_norm of get_default_optimizer_params is for it

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        *,
        layer_idx: int = 0,
    ) -> None:
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps, self.elementwise_affine, self.layer_idx = eps, elementwise_affine, layer_idx
        if elementwise_affine:
            self.weight: Any = new_parameter(self.normalized_shape, nn.init.ones_, layer_idx)
            self.bias: Any = new_parameter(self.normalized_shape, nn.init.zeros_, layer_idx, requires_grad=bias)
        else:
            self.weight = self.bias = None

    def forward(self, x: Any) -> Any:
        return F.layer_norm(at_layer(x, self.layer_idx), self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class RMSLayerNorm(nn.Module):
    """x / sqrt(mean(x²) + eps), times a weight: T5's and Llama's norm. The mean is taken in float32."""

    def __init__(self, normalized_shape: int | Sequence[int], eps: float = 1e-6, layer_idx: int = 0) -> None:
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps, self.layer_idx = eps, layer_idx
        self.weight = new_parameter(self.normalized_shape, nn.init.ones_, layer_idx)

    def forward(self, hidden_states: Any) -> Any:
        x = at_layer(hidden_states, self.layer_idx)
        dims = tuple(range(-len(self.normalized_shape), 0))
        scale = torch.rsqrt(x.float().square().mean(dims, keepdim=True) + self.eps)
        return self.weight * (x * scale).to(self.weight.dtype)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}"
