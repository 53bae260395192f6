"""Ops that OneFlow fuses, as the formulas they stand for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from oneflow._C.network import bias_add, dropout, fast_gelu
from oneflow.engine.core.errors import ArgumentError

Tensors = Sequence[torch.Tensor]
Generator = torch.Generator | None


def fused_bias_add_gelu(a: torch.Tensor, b: torch.Tensor, *, axis: int = 1) -> torch.Tensor:
    """gelu(a + b), with b along ``axis``."""
    return F.gelu(bias_add(a, b, axis))


def fused_bias_add_dropout(
    a: torch.Tensor, b: torch.Tensor, *, p: float = 0.5, axis: int = 1, generator: Generator = None
) -> torch.Tensor:
    """dropout(a + b), with b along ``axis``."""
    return dropout(bias_add(a, b, axis), p, True, False, generator)


def fused_scale_mask_softmax(
    x: torch.Tensor, mask: torch.Tensor, fill_value: float = 0.0, scale: float = 1.0
) -> torch.Tensor:
    """softmax over the last dim of x * scale where ``mask`` is true and ``fill_value`` elsewhere."""
    return torch.softmax((x * scale).masked_fill(mask == 0, fill_value), -1)


def fused_scale_mask_softmax_dropout(
    x: torch.Tensor,
    mask: torch.Tensor,
    *,
    fill_value: float = 0.0,
    scale: float = 1.0,
    p: float = 0.5,
    training: bool = True,
    generator: Generator = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``fused_scale_mask_softmax`` with dropout, and without."""
    made = fused_scale_mask_softmax(x, mask, fill_value, scale)
    return dropout(made, p, training, False, generator), made


def fused_bias_add_scale_mask_softmax_dropout(
    x: torch.Tensor,
    bias: torch.Tensor,
    mask: torch.Tensor,
    *,
    fill_value: float = 0.0,
    scale: float = 1.0,
    p: float = 0.5,
    training: bool = True,
    generator: Generator = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``fused_scale_mask_softmax_dropout`` of x + bias."""
    return fused_scale_mask_softmax_dropout(
        x + bias, mask, fill_value=fill_value, scale=scale, p=p, training=training, generator=generator
    )


def fused_scale_tril(x: torch.Tensor, diagonal: int = 0, fill_value: float = 0, scale: float = 1) -> torch.Tensor:
    """x * scale on and below a diagonal, ``fill_value`` above."""
    kept = torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).tril(diagonal)
    return (x * scale).masked_fill(~kept, fill_value)


def fused_scale_tril_softmax_mask_scale(
    a: torch.Tensor,
    p: float = 0.5,
    diagonal: int = 0,
    tril_scale_value: float = 1.0,
    tril_fill_value: float = 0.0,
    generator: Generator = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """softmax over the last dim of ``fused_scale_tril``, with dropout and without."""
    made = torch.softmax(fused_scale_tril(a, diagonal, tril_fill_value, tril_scale_value), -1)
    return dropout(made, p, True, False, generator), made


def fused_fast_gelu_mul(x: torch.Tensor, multiplier: torch.Tensor) -> torch.Tensor:
    """fast_gelu(x) * multiplier."""
    return fast_gelu(x) * multiplier


def fused_weighted_sum(inputs: Tensors, weights: Sequence[float], *, alpha: float = 1.0) -> torch.Tensor:
    """alpha times the sum of weights[i] * inputs[i]."""
    return alpha * sum((x * w for x, w in zip(inputs, weights)), torch.zeros_like(inputs[0]))


def fused_matmul_bias(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    _add_to_output: torch.Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
) -> torch.Tensor:
    """alpha * x @ weight^T + bias + beta * _add_to_output."""
    made = F.linear(x, weight) * alpha
    made = made if bias is None else made + bias
    return made if _add_to_output is None else made + beta * _add_to_output


def fused_mlp(x: torch.Tensor, weights: Tensors, biases: Tensors, skip_final_activation: bool = False) -> torch.Tensor:
    """Linear layers with relu between, and after the last unless it is left out."""
    return fused_matmul_bias_add_relu_dropout(
        x, weights, biases, skip_final_activation=skip_final_activation, dropout_rate_list=[0.0] * len(weights)
    )


def fused_matmul_bias_add_relu_dropout(
    x: torch.Tensor,
    weights: Tensors,
    biases: Tensors,
    *,
    skip_final_activation: bool = False,
    dropout_rate_list: Sequence[float],
    generator: Generator = None,
) -> torch.Tensor:
    """Linear layers, each followed by relu and dropout; ``skip_final_activation`` leaves out the last relu."""
    for i, (weight, bias, rate) in enumerate(zip(weights, biases, dropout_rate_list)):
        x = F.linear(x, weight, bias)
        x = x if skip_final_activation and i == len(weights) - 1 else x.relu()
        x = dropout(x, rate, True, False, generator) if rate else x
    return x


_ACTIVATIONS: dict[str, Callable[..., torch.Tensor]] = {
    "none": lambda x: x,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "gelu": F.gelu,
    "fast_gelu": fast_gelu,
    "silu": F.silu,
}


def fused_glu(
    x: torch.Tensor,
    w: torch.Tensor,
    b: torch.Tensor | None = None,
    v: torch.Tensor | None = None,
    c: torch.Tensor | None = None,
    activation: str = "none",
) -> torch.Tensor:
    """(x w^T + b) * activation(gate): the gate is x v^T + c, or without v the second half of the product with w."""
    if activation not in _ACTIVATIONS:
        raise ArgumentError(f"fused_glu's activation is one of {list(_ACTIVATIONS)}, got {activation!r}")
    hidden = F.linear(x, w, b)
    hidden, gate = hidden.chunk(2, -1) if v is None else (hidden, F.linear(x, v, c))
    return hidden * _ACTIVATIONS[activation](gate)


def grouped_matmul(xs: Tensors, weights: Tensors) -> tuple[torch.Tensor, ...]:
    """x @ weight^T of each pair."""
    return tuple(F.linear(x, w) for x, w in zip(xs, weights))


def grouped_matmul_bias(xs: Tensors, weights: Tensors, biases: Tensors) -> tuple[torch.Tensor, ...]:
    """x @ weight^T + bias of each triple."""
    return tuple(F.linear(x, w, b) for x, w, b in zip(xs, weights, biases))


def fused_self_attention(
    hidden_states: torch.Tensor, head_size: int = 8, alpha: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """alpha * q k^T and v, each (batch, heads, ...), of (sequence, batch, heads * 3 * head_size) that holds q, k and v
    of each head."""
    sequence, batch, width = hidden_states.shape
    parts = hidden_states.reshape(sequence, batch, width // (3 * head_size), 3 * head_size).permute(1, 2, 0, 3)
    q, k, v = parts.chunk(3, -1)
    return alpha * q @ k.mT, v


def fused_multi_head_attention_inference(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    num_heads: int,
    causal: bool = False,
    query_hidden_slice_start: int = 0,
    query_hidden_slice_end: int = -1,
    key_hidden_slice_start: int = 0,
    key_hidden_slice_end: int = -1,
    value_hidden_slice_start: int = 0,
    value_hidden_slice_end: int = -1,
) -> torch.Tensor:
    """Attention of (batch, sequence, heads * size); each of the three may be a slice of a wider tensor."""

    def heads(x: torch.Tensor, start: int, end: int) -> torch.Tensor:
        part = x[..., start : x.shape[-1] if end == -1 else end]
        return part.unflatten(-1, (num_heads, -1)).transpose(1, 2)

    made = F.scaled_dot_product_attention(
        heads(query, query_hidden_slice_start, query_hidden_slice_end),
        heads(key, key_hidden_slice_start, key_hidden_slice_end),
        heads(value, value_hidden_slice_start, value_hidden_slice_end),
        is_causal=causal,
    )
    return made.transpose(1, 2).flatten(2)


def fused_cross_feature_interaction(
    x: torch.Tensor, weight: torch.Tensor, x0: torch.Tensor, bias: torch.Tensor, interaction_mode: str
) -> torch.Tensor:
    """A cross layer: x0 * (x w^T) + bias + x ("vector"), or x0 * (x w^T + bias) + x ("matrix")."""
    if interaction_mode not in ("vector", "matrix"):
        raise ArgumentError(f'interaction_mode is "vector" or "matrix", got {interaction_mode!r}')
    product = F.linear(x, weight)
    return x0 * product + bias + x if interaction_mode == "vector" else x0 * (product + bias) + x


def fused_dot_feature_interaction(
    features: Tensors,
    output_concat: torch.Tensor | None = None,
    self_interaction: bool = False,
    output_padding: int = 0,
    pooling: str = "none",
) -> torch.Tensor:
    """Products of every pair of the features (batch, count, size), beside ``output_concat`` and ``output_padding``
    zeros.

    With ``pooling="sum"`` their sum over pairs instead, (batch, size).
    """
    rows = torch.cat(list(features), 1)
    if pooling == "sum":
        return (rows.sum(1).square() - rows.square().sum(1)) / 2
    low = torch.tril_indices(rows.shape[1], rows.shape[1], 0 if self_interaction else -1)
    pairs = (rows @ rows.mT)[:, low[0], low[1]]
    parts = [pairs] if output_concat is None else [output_concat, pairs]
    return F.pad(torch.cat(parts, 1), (0, output_padding))


def fused_get_boundding_boxes_coord(
    x1: torch.Tensor,
    y1: torch.Tensor,
    w1: torch.Tensor,
    h1: torch.Tensor,
    x2: torch.Tensor,
    y2: torch.Tensor,
    w2: torch.Tensor,
    h2: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """Corners (x low, x high, y low, y high) of two sets of boxes given by centre and size."""
    first = (x1 - w1 / 2, x1 + w1 / 2, y1 - h1 / 2, y1 + h1 / 2)
    return (*first, x2 - w2 / 2, x2 + w2 / 2, y2 - h2 / 2, y2 + h2 / 2)


def fused_get_intersection_area(*corners: torch.Tensor) -> torch.Tensor:
    """The common area of boxes (x low, x high of both, then y low, y high of both)."""
    a_x1, a_x2, b_x1, b_x2, a_y1, a_y2, b_y1, b_y2 = corners
    width = (torch.minimum(a_x2, b_x2) - torch.maximum(a_x1, b_x1)).clamp(min=0)
    return width * (torch.minimum(a_y2, b_y2) - torch.maximum(a_y1, b_y1)).clamp(min=0)


def fused_get_iou(
    w1: torch.Tensor, h1: torch.Tensor, w2: torch.Tensor, h2: torch.Tensor, inter: torch.Tensor, eps: float
) -> torch.Tensor:
    """Intersection over union."""
    return inter / (w1 * h1 + w2 * h2 - inter + eps)


def fused_get_convex_diagonal_squared(*corners: Any) -> torch.Tensor:
    """The squared diagonal of the box around both, plus eps, the last argument."""
    a_x1, a_x2, b_x1, b_x2, a_y1, a_y2, b_y1, b_y2, eps = corners
    width = torch.maximum(a_x2, b_x2) - torch.minimum(a_x1, b_x1)
    return width.square() + (torch.maximum(a_y2, b_y2) - torch.minimum(a_y1, b_y1)).square() + eps


def fused_get_center_dist(*corners: torch.Tensor) -> torch.Tensor:
    """The squared distance between the centres."""
    a_x1, a_x2, b_x1, b_x2, a_y1, a_y2, b_y1, b_y2 = corners
    return ((b_x1 + b_x2 - a_x1 - a_x2).square() + (b_y1 + b_y2 - a_y1 - a_y2).square()) / 4


def fused_get_ciou_diagonal_angle(
    w1: torch.Tensor, h1: torch.Tensor, w2: torch.Tensor, h2: torch.Tensor, eps: float
) -> torch.Tensor:
    """How much the shapes of two boxes differ: 4 / pi^2 times the squared difference of their angles."""
    return 4 / math.pi**2 * (torch.atan(w2 / (h2 + eps)) - torch.atan(w1 / (h1 + eps))).square()


def fused_get_ciou_result(
    v: torch.Tensor, iou: torch.Tensor, rho2: torch.Tensor, c2: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The complete IoU, and the weight of the shapes in it."""
    alpha = v / (v - iou + (1 + eps))
    return iou - (rho2 / c2 + v * alpha), alpha
