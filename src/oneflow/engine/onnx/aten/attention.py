"""Emitters of aten's attention kernels, as products and a softmax: runtimes fuse them again."""

from __future__ import annotations

import math
from typing import Any

import torch

from oneflow.engine.core.errors import UnsupportedError
from oneflow.engine.onnx.aten.builder import AtenBuilder
from oneflow.engine.onnx.aten.family import AtenEmitters
from oneflow.engine.onnx.aten.matmul import last_two_swapped
from oneflow.engine.onnx.builder import Operand, Wire

EMITTERS = AtenEmitters()


def _attention(
    b: AtenBuilder,
    q: Operand,
    k: Operand,
    v: Operand,
    mask: Operand | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> tuple[Wire, Wire, Wire]:
    """The result, the weights and the scores."""
    if dropout_p:
        raise UnsupportedError("dropout of attention is active; call .eval() on the module")
    keys, values = _for_every_head(b, k, q), _for_every_head(b, v, q)
    factor = 1 / math.sqrt(q.size(q.rank - 1)) if scale is None else scale
    scores = b.node("MatMul", b.node("Mul", q, factor), last_two_swapped(b, keys))
    scores = _masked(b, scores, q, k, mask, is_causal)
    weights = b.node("Softmax", scores, axis=q.rank - 1)
    if mask is not None:  # a row of which nothing is left gives 0
        empty = b.compare("Equal", b.reduce("ReduceMax", scores, [q.rank - 1]), -math.inf)
        weights = b.where(empty, b.wire(0, q.dtype), weights)
    return b.node("MatMul", weights, values), weights, scores


def _for_every_head(b: AtenBuilder, x: Operand, q: Operand) -> Operand:
    """Keys or values of grouped heads, each repeated for the heads that share it."""
    head = x.rank - 3
    if x.rank < 4 or x.shape[head] == q.shape[head]:
        return x
    groups = q.size(head) // x.size(head)
    repeated = b.node("Tile", b.unsqueeze(x, head + 1), b.ints([1] * (head + 1) + [groups, 1, 1]))
    wide = Operand("", x.dtype, (*x.shape[:head], q.shape[head], *x.shape[head + 1 :]), x.batch_dims)
    return Operand(b.reshape_like(repeated, wide).name, wide.dtype, wide.shape, wide.batch_dims)


def _masked(b: AtenBuilder, scores: Wire, q: Operand, k: Operand, mask: Operand | None, is_causal: bool) -> Wire:
    if is_causal:
        seen = torch.ones(q.size(q.rank - 2), k.size(k.rank - 2), dtype=torch.bool).tril()
        scores = b.where(b.constant(seen), scores, b.wire(-math.inf, scores.dtype))
    return scores if mask is None else b.node("Add", scores, b.cast(mask, scores.dtype))


def _log_sum(b: AtenBuilder, scores: Wire, rank: int, dtype: torch.dtype) -> Wire:
    return b.cast(b.reduce("ReduceLogSumExp", scores, [rank - 1], keepdims=False), dtype)


@EMITTERS.row("_scaled_dot_product_flash_attention_for_cpu.default")
def flash_for_cpu(
    b: AtenBuilder,
    query: Operand,
    key: Operand,
    value: Operand,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Operand | None = None,
    scale: float | None = None,
) -> list[Wire | None]:
    made, _, scores = _attention(b, query, key, value, attn_mask, dropout_p, is_causal, scale)
    return [made, _log_sum(b, scores, query.rank, b.results[1].dtype)]


@EMITTERS.row("_scaled_dot_product_flash_attention.default")
def flash(
    b: AtenBuilder,
    query: Operand,
    key: Operand,
    value: Operand,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> list[Wire | None]:
    made = _attention(b, query, key, value, None, dropout_p, is_causal, scale)[0]
    return [made, *[None] * (len(b.results) - 1)]


@EMITTERS.row("_scaled_dot_product_efficient_attention.default", "_scaled_dot_product_cudnn_attention.default")
def efficient(
    b: AtenBuilder,
    query: Operand,
    key: Operand,
    value: Operand,
    attn_bias: Operand | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *_: Any,
    scale: float | None = None,
) -> list[Wire | None]:
    made = _attention(b, query, key, value, attn_bias, dropout_p, is_causal, scale)[0]
    return [made, *[None] * (len(b.results) - 1)]


@EMITTERS.row("_scaled_dot_product_attention_math.default")
def by_products(
    b: AtenBuilder,
    query: Operand,
    key: Operand,
    value: Operand,
    attn_mask: Operand | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    dropout_mask: Operand | None = None,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> list[Wire | None]:
    made, weights, _ = _attention(b, query, key, value, attn_mask, dropout_p, is_causal, scale)
    return [made, weights]


@EMITTERS.row("scaled_dot_product_attention.default")
def attention(
    b: AtenBuilder,
    query: Operand,
    key: Operand,
    value: Operand,
    attn_mask: Operand | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Wire:
    """The only one whose mask may be of bools, which say what is seen; the kernels add theirs."""
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        added = b.where(attn_mask, b.wire(0, query.dtype), b.wire(-math.inf, query.dtype))
        attn_mask = Operand(added.name, query.dtype, attn_mask.shape, attn_mask.batch_dims)
    return _attention(b, query, key, value, attn_mask, dropout_p, is_causal, scale)[0]


EMITTERS.cannot(
    "it is a whole layer in one kernel of torch; trace with torch.backends.mha.set_fastpath_enabled(False)",
    *("_transformer_encoder_layer_fwd.default", "_native_multi_head_attention.default"),
)
