"""Attention of many heads, by torch's fused kernel."""

from __future__ import annotations

import enum
from typing import Any

import torch
import torch.nn.functional as F

import oneflow as flow
from libai.layers.laying import Init, at_layer, made_like
from libai.layers.linear import Linear
from libai.utils import distributed as dist
from oneflow import nn
from oneflow.engine.core.errors import ArgumentError

Cache = tuple[Any, Any]


class AttnMaskType(enum.Enum):
    """What a position may look at: what the mask says, or besides that only itself and what stands before it."""

    padding = 1
    causal = 2


class MultiheadAttention(nn.Module):
    """Self-attention, or with ``is_cross_attention`` attention to ``encoder_states``.

    Rows of ``query_key_value`` stand head by head: query, key and value of the first head, then of the second. A mask
    has 1 where a key is looked at and 0 where it is not, and broadcasts to (batch, heads, queries, keys). Tensor
    parallelism cuts by heads. The fusion flags and ``apply_query_key_layer_scaling``, which divides scores before the
    softmax and multiplies them in it, change no number.
    """

    def __init__(
        self,
        hidden_size: int,
        num_attention_heads: int,
        is_cross_attention: bool = False,
        attention_dropout_prob: float = 0.0,
        output_dropout_prob: float = 0.0,
        init_method: Init = nn.init.xavier_normal_,
        output_layer_init_method: Init | None = None,
        bias_dropout_fusion: bool = False,
        scale_mask_softmax_fusion: bool = False,
        apply_query_key_layer_scaling: bool = False,
        attn_mask_type: AttnMaskType = AttnMaskType.padding,
        *,
        layer_idx: int = 0,
    ) -> None:
        super().__init__()
        require_heads(hidden_size, num_attention_heads)
        self.hidden_size, self.num_heads, self.head_size = (
            hidden_size,
            num_attention_heads,
            hidden_size // num_attention_heads,
        )
        self.is_cross_attention, self.attn_mask_type, self.layer_idx = is_cross_attention, attn_mask_type, layer_idx
        self.attention_dropout_prob, self.output_dropout_prob = attention_dropout_prob, output_dropout_prob
        self.bias_dropout_fusion, self.scale_mask_softmax_fusion = bias_dropout_fusion, scale_mask_softmax_fusion
        self.apply_query_key_layer_scaling = apply_query_key_layer_scaling
        first: dict[str, Any] = {"parallel": "col", "init_method": init_method, "layer_idx": layer_idx}
        if is_cross_attention:
            self.query = Linear(hidden_size, hidden_size, **first)
            self.key_value = Linear(hidden_size, 2 * hidden_size, **first)
        else:
            self.query_key_value = Linear(hidden_size, 3 * hidden_size, **first)
        self.dense = Linear(
            hidden_size,
            hidden_size,
            parallel="row",
            init_method=output_layer_init_method or init_method,
            layer_idx=layer_idx,
        )

    def forward(
        self,
        hidden_states: Any,
        encoder_states: Any = None,
        attention_mask: Any = None,
        past_key_value: Cache | None = None,
        use_cache: bool = False,
    ) -> Any:
        """The new states; with ``use_cache`` also the keys and values, (batch, heads, positions, size) each.
        ``past_key_value`` are those of an earlier call: in self-attention of the positions before these, in
        cross-attention of all ``encoder_states``."""
        hidden_states = at_layer(hidden_states, self.layer_idx)
        make = self._to_others if self.is_cross_attention else self._to_itself
        query, key, value = make(hidden_states, at_layer(encoder_states, self.layer_idx), past_key_value)
        dropout = self.attention_dropout_prob if self.training else 0.0
        is_causal = self.attn_mask_type is AttnMaskType.causal and not self.is_cross_attention
        found = attend(query, key, value, at_layer(attention_mask, self.layer_idx), is_causal, dropout)
        states = self.dense(found.transpose(1, 2).flatten(2))
        states = F.dropout(states, self.output_dropout_prob, self.training)
        return (states, (key, value)) if use_cache else states

    def _to_itself(self, states: Any, _: Any, past: Cache | None) -> tuple[Any, Any, Any]:
        query, key, value = self._heads(self.query_key_value(states), 3)
        return (
            (query, key, value)
            if past is None
            else (query, torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2))
        )

    def _to_others(self, states: Any, encoder_states: Any, past: Cache | None) -> tuple[Any, Any, Any]:
        (query,) = self._heads(self.query(states), 1)
        if past is not None:
            return query, *past
        if encoder_states is None:
            raise ArgumentError(
                "attention to other states (is_cross_attention=True) is called with encoder_states, or with "
                "past_key_value of an earlier call"
            )
        return query, *self._heads(self.key_value(encoder_states), 2)

    def _heads(self, states: Any, parts: int) -> tuple[Any, ...]:
        batch, length, _ = states.shape
        split = states.view(batch, length, self.num_heads, parts * self.head_size).transpose(1, 2)
        return split.chunk(parts, dim=-1) if parts > 1 else (split,)

    def extra_repr(self) -> str:
        return (
            f"hidden_size={self.hidden_size}, num_heads={self.num_heads}, "
            f"is_cross_attention={self.is_cross_attention}, attn_mask_type={self.attn_mask_type.name}, "
            f"dropout={self.attention_dropout_prob}"
        )


def require_heads(hidden_size: int, heads: int, name: str = "num_attention_heads") -> None:
    """Refuses heads that do not share the width, or ranks that do not share the heads, evenly."""
    if hidden_size % heads:
        raise ArgumentError(
            f"hidden_size must be divisible by {name}, got hidden_size={hidden_size} and {name}={heads}"
        )
    if heads % dist.get_tensor_parallel_size():
        raise ArgumentError(
            f"{name}={heads} heads are not shared out evenly among "
            f"train.dist.tensor_parallel_size={dist.get_tensor_parallel_size()} ranks; take a size that divides them"
        )


def attend(query: Any, key: Any, value: Any, mask: Any, is_causal: bool, dropout: float) -> Any:
    """softmax(QKᵀ / sqrt(size)) V, each of (batch, heads, positions, size). Queries are the last of the keys' positions
    where it is causal."""
    queries, keys = query.shape[2], key.shape[2]
    if mask is None and not dropout and is_causal and queries == keys:
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)
    if is_causal and queries > 1:
        earlier = made_like(query, flow.ones, queries, keys).tril(keys - queries)
        mask = earlier if mask is None else earlier * mask
    added = None if mask is None else _added(mask, query)
    if not dropout:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=added)
    # The fused kernel has no dropout on a CPU, and torch's formula in its place checks for rows without keys, which
    # there are none of here.
    scores = _product(query * query.shape[-1] ** -0.5, key.transpose(-1, -2))
    shares = torch.softmax(scores if added is None else scores + added, dim=-1)
    return _product(F.dropout(shares, dropout), value)


def _product(left: Any, right: Any) -> Any:
    """The products of each sample and head. Both become one dim of a batch of products; heads stand outside in it where
    they, and no batches, are cut."""
    if not left.is_global or dist.get_tensor_parallel_size() == 1 or dist.get_data_parallel_size() > 1:
        return torch.matmul(left, right)
    return torch.matmul(left.transpose(0, 1), right.transpose(0, 1)).transpose(0, 1)


def _added(mask: Any, query: Any) -> Any:
    """A mask of 0 and 1 as what is added to scores. No score is seen beside it, so that a row without any key looks at
    all of them alike."""
    kind = query.placement.type if query.is_global else query.device.type
    nothing = -1e30 if kind == "cpu" else torch.finfo(torch.float16).min  # on GPUs it may be cast to float16
    zeros = torch.zeros_like(mask, dtype=query.dtype)
    return zeros.masked_fill(mask == 0, nothing)
