"""Llama: RMS norms, rotary positions, gated MLPs, queries that share keys. Names of parameters are those of Hugging
Face."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F

import oneflow as flow
from libai.config import configurable
from libai.inference.generator.decoders import llama_decoder
from libai.inference.generator.generation_utils import Generator, going_on
from libai.layers import Linear, LMLogits, ParallelCrossEntropyLoss, RMSLayerNorm, VocabEmbedding
from libai.layers.attention import attend, require_heads
from libai.layers.laying import Init, at_layer, laid, made_like
from libai.models.gpt_model import Caches, require_positions
from libai.models.utils.given import given
from libai.models.utils.stages import set_stages
from libai.models.utils.weight_init import init_method_normal, scaled_init_method_normal
from oneflow import nn
from oneflow.engine.core.errors import ArgumentError


def rotary_rates(size: int, theta: float, scaling: Mapping[str, Any] | None) -> list[float]:
    """By how much each pair of a head turns from a position to the next. ``scaling`` is that of Hugging Face's configs:
    ``linear`` or ``llama3``."""
    rates = [theta ** (-2 * i / size) for i in range(size // 2)]
    kind = None if scaling is None else scaling.get("rope_type", scaling.get("type"))
    if kind in (None, "default"):
        return rates
    assert scaling is not None
    factor = scaling["factor"]
    if kind == "linear":
        return [rate / factor for rate in rates]
    if kind != "llama3":
        raise ArgumentError(f'rope_scaling has the rope_type "default", "linear" or "llama3", got {kind!r}')
    low, high, old = (
        scaling["low_freq_factor"],
        scaling["high_freq_factor"],
        scaling["original_max_position_embeddings"],
    )

    def scaled(rate: float) -> float:
        """Slow turns are slowed down, fast ones stay, and those between are mixed of both."""
        turns = old * rate / (2 * math.pi)
        share = min(1.0, max(0.0, (turns - low) / (high - low)))
        return share * rate + (1 - share) * rate / factor

    return [scaled(rate) for rate in rates]


def turned(states: Any, cosines: Any, sines: Any) -> Any:
    """Rotary positions: pairs are halves of a head apart."""
    first, second = states.chunk(2, dim=-1)
    return states * cosines + torch.cat([-second, first], dim=-1) * sines


class LlamaAttention(nn.Module):
    """Causal attention in which groups of queries share keys and values. Tensor parallelism cuts by heads."""

    def __init__(
        self,
        hidden_size: int,
        heads: int,
        key_heads: int,
        head_dim: int,
        dropout: float,
        bias: bool,
        first: Init,
        last: Init,
        layer_idx: int,
    ) -> None:
        super().__init__()
        require_heads(heads * head_dim, heads)
        require_heads(heads, key_heads, "num_key_value_heads")
        self.heads, self.key_heads, self.head_dim, self.dropout, self.layer_idx = (
            heads,
            key_heads,
            head_dim,
            dropout,
            layer_idx,
        )
        told: dict[str, Any] = {"bias": bias, "layer_idx": layer_idx}
        self.q_proj = Linear(hidden_size, heads * head_dim, parallel="col", init_method=first, **told)
        self.k_proj = Linear(hidden_size, key_heads * head_dim, parallel="col", init_method=first, **told)
        self.v_proj = Linear(hidden_size, key_heads * head_dim, parallel="col", init_method=first, **told)
        self.o_proj = Linear(heads * head_dim, hidden_size, parallel="row", init_method=last, **told)

    def forward(
        self, states: Any, cosines: Any, sines: Any, mask: Any, past: tuple[Any, ...] | None
    ) -> tuple[Any, tuple[Any, Any]]:
        batch, length, _ = states.shape
        query = turned(self.q_proj(states).view(batch, length, self.heads, -1).transpose(1, 2), cosines, sines)
        key = turned(self.k_proj(states).view(batch, length, self.key_heads, -1).transpose(1, 2), cosines, sines)
        value = self.v_proj(states).view(batch, length, self.key_heads, -1).transpose(1, 2)
        if past is not None:
            key, value = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
        found = attend(
            query, self._shared(key), self._shared(value), mask, True, self.dropout if self.training else 0.0
        )
        return self.o_proj(found.transpose(1, 2).flatten(2)), (key, value)

    def _shared(self, states: Any) -> Any:
        """For every query its key: each of a group has the same one."""
        each = self.heads // self.key_heads
        return states if each == 1 else states[:, :, None].expand(-1, -1, each, -1, -1).flatten(1, 2)


class LlamaMLP(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(
        self, hidden_size: int, intermediate_size: int, bias: bool, first: Init, last: Init, layer_idx: int
    ) -> None:
        super().__init__()
        self.gate_proj = Linear(
            hidden_size, intermediate_size, bias, parallel="col", init_method=first, layer_idx=layer_idx
        )
        self.up_proj = Linear(
            hidden_size, intermediate_size, bias, parallel="col", init_method=first, layer_idx=layer_idx
        )
        self.down_proj = Linear(
            intermediate_size, hidden_size, bias, parallel="row", init_method=last, layer_idx=layer_idx
        )

    def forward(self, states: Any) -> Any:
        return self.down_proj(F.silu(self.gate_proj(states)) * self.up_proj(states))


class LlamaDecoderLayer(nn.Module):
    """Norm and attention, norm and MLP, each added to what came in; all on the stage of ``layer_idx``."""

    def __init__(self, attention: LlamaAttention, mlp: LlamaMLP, hidden_size: int, eps: float, layer_idx: int) -> None:
        super().__init__()
        self.layer_idx = layer_idx
        self.input_layernorm = RMSLayerNorm(hidden_size, eps=eps, layer_idx=layer_idx)
        self.self_attn = attention
        self.post_attention_layernorm = RMSLayerNorm(hidden_size, eps=eps, layer_idx=layer_idx)
        self.mlp = mlp

    def forward(
        self,
        states: Any,
        cosines: Any,
        sines: Any,
        mask: Any = None,
        past_key_value: tuple[Any, ...] | None = None,
        use_cache: bool = False,
    ) -> Any:
        states, cosines, sines, mask = (at_layer(value, self.layer_idx) for value in (states, cosines, sines, mask))
        found, cache = self.self_attn(self.input_layernorm(states), cosines, sines, mask, past_key_value)
        states = states + found
        states = states + self.mlp(self.post_attention_layernorm(states))
        return (states, cache) if use_cache else states


class LlamaModel(nn.Module):
    """The states of all positions behind the last norm."""

    @configurable
    def __init__(
        self,
        hidden_layers: int,
        vocab_size: int,
        hidden_size: int,
        intermediate_size: int,
        num_attention_heads: int,
        num_key_value_heads: int | None = None,
        head_dim: int | None = None,
        max_position_embeddings: int = 2048,
        rms_norm_eps: float = 1e-6,
        rope_theta: float = 10000.0,
        rope_scaling: Mapping[str, Any] | None = None,
        attention_dropout: float = 0.0,
        attention_bias: bool = False,
        mlp_bias: bool = False,
        initializer_range: float = 0.02,
        use_scaled_init_for_output_weights: bool = True,
        amp_enabled: bool = False,
    ) -> None:
        super().__init__()
        first = init_method_normal(initializer_range)
        last = (
            scaled_init_method_normal(initializer_range, hidden_layers) if use_scaled_init_for_output_weights else first
        )
        if head_dim is None:
            require_heads(hidden_size, num_attention_heads)
        size = head_dim or hidden_size // num_attention_heads
        self.max_position_embeddings = max_position_embeddings
        self.rope_theta, self.rope_scaling = rope_theta, rope_scaling
        self.rates = rotary_rates(size, rope_theta, rope_scaling)
        self.embed_tokens = VocabEmbedding(vocab_size, hidden_size, init_method=first, amp_enabled=amp_enabled)

        def layer(i: int) -> LlamaDecoderLayer:
            attention = LlamaAttention(
                hidden_size,
                num_attention_heads,
                num_key_value_heads or num_attention_heads,
                size,
                attention_dropout,
                attention_bias,
                first,
                last,
                i,
            )
            return LlamaDecoderLayer(
                attention,
                LlamaMLP(hidden_size, intermediate_size, mlp_bias, first, last, i),
                hidden_size,
                rms_norm_eps,
                i,
            )

        self.layers = nn.ModuleList([layer(i) for i in range(hidden_layers)])
        self.norm = RMSLayerNorm(hidden_size, eps=rms_norm_eps, layer_idx=-1)

    @classmethod
    def from_config(cls, cfg: Any) -> dict[str, Any]:
        return {name: cfg[name] for name in _ARGUMENTS} | given(cfg, _OPTIONS)

    def forward(
        self, input_ids: Any, attention_mask: Any = None, past_key_values: Caches | None = None, use_cache: bool = False
    ) -> Any:
        """``attention_mask``, (batch, all positions so far), has 0 where padding stands. With ``use_cache`` the result
        is the states, and what ``past_key_values`` takes at the next call."""
        past = 0 if past_key_values is None else past_key_values[0][0].shape[2]
        states = self.embed_tokens(input_ids)
        cosines, sines = self._positions(states, past, attention_mask)
        mask = None if attention_mask is None else attention_mask[:, None, None, :]
        caches = []
        for number, layer in enumerate(self.layers):
            states = layer(
                states, cosines, sines, mask, None if past_key_values is None else past_key_values[number], use_cache
            )
            if use_cache:
                states, cache = states
                caches.append(cache)
        states = self.norm(states)
        return (states, tuple(caches)) if use_cache else states

    def _positions(self, states: Any, past: int, attention_mask: Any) -> tuple[Any, Any]:
        """Cosines and sines of the angles, (1 or batch, 1, length, size): positions count from the first token behind
        padding."""
        stop = past + states.shape[1]
        require_positions(stop, self.max_position_embeddings)
        if attention_mask is None:
            positions = made_like(states, flow.arange, past, stop)[None]
        else:
            positions = (attention_mask.long().cumsum(1) - 1).clamp(min=0)[:, past:]
        rates = made_like(states, flow.tensor, self.rates)
        angles = positions[:, None, :, None].float() * torch.cat([rates, rates])
        return angles.cos().to(states.dtype), angles.sin().to(states.dtype)


_ARGUMENTS = ("hidden_layers", "vocab_size", "hidden_size", "intermediate_size", "num_attention_heads")
_OPTIONS = (
    "num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps", "rope_theta", "rope_scaling", "attention_dropout", "attention_bias", "mlp_bias",
    "initializer_range", "use_scaled_init_for_output_weights", "amp_enabled",
)  # fmt: skip


class LlamaForCausalLM(nn.Module, Generator):
    """``LlamaModel`` with a head, which with ``cfg.tie_word_embeddings`` is its table of tokens: with labels, the next
    tokens, its loss; else its scores."""

    def __init__(self, cfg: Any) -> None:
        super().__init__()
        self.cfg = cfg
        self.model = LlamaModel(cfg)
        self.is_tied = bool(cfg.get("tie_word_embeddings", False))
        if self.is_tied:
            self.lm_head: Any = LMLogits(cfg.vocab_size)
        else:
            self.lm_head = Linear(
                cfg.hidden_size,
                cfg.vocab_size,
                bias=False,
                parallel="col",
                init_method=init_method_normal(cfg.get("initializer_range", 0.02)),
                layer_idx=-1,
            )
        self.loss_func = ParallelCrossEntropyLoss()

    def forward(
        self,
        input_ids: Any,
        labels: Any = None,
        attention_mask: Any = None,
        past_key_values: Caches | None = None,
        use_cache: bool = False,
    ) -> dict[str, Any]:
        """Labels are those of ``GPTForPreTraining``: what comes next at each position. Those below 0 do not count."""
        found = self.model(input_ids, attention_mask, past_key_values, use_cache)
        states, caches = found if use_cache else (found, None)
        logits = self.lm_head(states, self.model.embed_tokens.weight) if self.is_tied else self.lm_head(states)
        if labels is None:
            return {"prediction_scores": logits} | ({"past_key_values": caches} if use_cache else {})
        counted = (laid(at_layer(labels, -1)) >= 0).float()
        return {"lm_loss": (self.loss_func(logits, labels) * counted.flatten()).sum() / (counted.sum() + 1e-7)}

    def prepare_inputs_for_generation(self, input_ids: Any, **kwargs: Any) -> dict[str, Any]:
        """What :meth:`forward` is called with for the tokens so far."""
        return going_on(input_ids, **kwargs)

    def cached_decoder(self, rows: int, capacity: int, **model_kwargs: Any) -> Any:
        """What generates faster than :meth:`forward`; None where a layer is of a class of one's own."""
        is_known = all(
            type(layer) is LlamaDecoderLayer and type(layer.self_attn) is LlamaAttention and type(layer.mlp) is LlamaMLP
            for layer in self.model.layers
        )
        return llama_decoder(self, rows, capacity) if is_known else None

    @staticmethod
    def set_pipeline_stage_id(model: Any) -> None:
        """Says which stage each layer belongs to."""
        set_stages(model)
