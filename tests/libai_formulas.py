"""Transformers by their formulas, in plain torch, on the weights of libai's layers: what tests of layers and of models
share."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

import oneflow as flow

Weights = dict[str, torch.Tensor]


def spread(x: torch.Tensor) -> Any:
    return x.to_global(flow.placement("cpu", [0]), flow.sbp.broadcast)


def values(module: torch.nn.Module) -> Weights:
    """Parameters as plain tensors; biases, which are zero at first, are given others so that they count."""
    for name, parameter in module.named_parameters():
        if name.endswith("bias"):
            parameter.data.copy_(spread(torch.randn(parameter.shape)))
    return {name: value.to_local().detach().clone() for name, value in module.state_dict().items()}


def attention(
    w: Weights, x: torch.Tensor, heads: int, mask: torch.Tensor | None, memory: torch.Tensor | None = None
) -> torch.Tensor:
    """Attention by its formula, on weights that stand head by head."""
    b, t, width = x.shape
    size = width // heads
    if memory is None:
        q, k, v = (
            (x @ w["query_key_value.weight"].T + w["query_key_value.bias"])
            .view(b, t, heads, 3, size)
            .permute(3, 0, 2, 1, 4)
        )
    else:
        q = (x @ w["query.weight"].T + w["query.bias"]).view(b, t, heads, size).transpose(1, 2)
        k, v = (
            (memory @ w["key_value.weight"].T + w["key_value.bias"])
            .view(b, memory.shape[1], heads, 2, size)
            .permute(3, 0, 2, 1, 4)
        )
    scores = q @ k.transpose(-1, -2) / math.sqrt(size)
    if mask is not None:
        scores = scores * mask - 10000.0 * (1 - mask)
    found = (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, width)
    return found @ w["dense.weight"].T + w["dense.bias"]


def norm(x: torch.Tensor, w: Weights, name: str, eps: float = 1e-5) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], eps)


def below(w: Weights, name: str) -> Weights:
    return {key.removeprefix(f"{name}."): value for key, value in w.items() if key.startswith(f"{name}.")}


def transformer_layer(
    w: Weights,
    x: torch.Tensor,
    heads: int,
    mask: torch.Tensor | None,
    memory: torch.Tensor | None = None,
    seen: torch.Tensor | None = None,
    behind: bool = False,
) -> torch.Tensor:
    """A layer; one of a decoder with ``memory``, of which it sees what ``seen`` says. ``behind``: residuals start
    behind the norms."""
    normed = norm(x, w, "input_layernorm")
    h = (normed if behind else x) + attention(below(w, "self_attention"), normed, heads, mask)
    normed = norm(h, w, "post_attention_layernorm")
    if memory is not None:
        h = (normed if behind else h) + attention(below(w, "cross_attention"), normed, heads, seen, memory)
        normed = norm(h, w, "post_cross_attention_layernorm")
    m = below(w, "mlp")
    up = F.gelu(normed @ m["dense_h_to_4h.weight"].T + m["dense_h_to_4h.bias"])
    return (normed if behind else h) + up @ m["dense_4h_to_h.weight"].T + m["dense_4h_to_h.bias"]
