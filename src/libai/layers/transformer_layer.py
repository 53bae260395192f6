"""One layer of a transformer, of an encoder or of a decoder."""

from __future__ import annotations

from typing import Any

from libai.layers.attention import AttnMaskType, MultiheadAttention
from libai.layers.droppath import DropPath
from libai.layers.layer_norm import LayerNorm
from libai.layers.laying import Init, at_layer
from libai.layers.mlp import MLP
from oneflow import nn


class TransformerLayer(nn.Module):
    """Norm and self-attention, with ``is_decoder`` norm and cross-attention, norm and MLP, each added to what came in.

    What a branch is added to is the value before its norm, with ``apply_residual_post_layernorm`` that behind it. All
    of a layer lies on the stage of ``layer_idx``; what it is called with is brought there. The fusion flags change no
    number; ``activation`` is that of the MLP, by its name in ``build_activation``.
    """

    def __init__(
        self,
        hidden_size: int,
        ffn_hidden_size: int,
        num_attention_heads: int,
        is_decoder: bool = False,
        attention_dropout_prob: float = 0.0,
        output_dropout_prob: float = 0.0,
        drop_path_prob: float = 0.0,
        layernorm_epsilon: float = 1e-5,
        init_method: Init = nn.init.xavier_normal_,
        output_layer_init_method: Init | None = None,
        bias_gelu_fusion: bool = False,
        bias_dropout_fusion: bool = False,
        scale_mask_softmax_fusion: bool = False,
        apply_query_key_layer_scaling: bool = False,
        apply_residual_post_layernorm: bool = False,
        attn_mask_type: AttnMaskType = AttnMaskType.padding,
        *,
        layer_idx: int = 0,
        activation: str = "gelu",
    ) -> None:
        super().__init__()
        self.hidden_size, self.ffn_hidden_size, self.num_attention_heads = (
            hidden_size,
            ffn_hidden_size,
            num_attention_heads,
        )
        self.attention_dropout_prob, self.output_dropout_prob = attention_dropout_prob, output_dropout_prob
        self.layernorm_epsilon, self.attn_mask_type = layernorm_epsilon, attn_mask_type
        self.is_decoder, self.layer_idx = is_decoder, layer_idx
        self.bias_dropout_fusion, self.scale_mask_softmax_fusion = bias_dropout_fusion, scale_mask_softmax_fusion
        self.apply_query_key_layer_scaling, self.apply_residual_post_layernorm = (
            apply_query_key_layer_scaling,
            apply_residual_post_layernorm,
        )
        self.init_method, self.output_layer_init_method = init_method, output_layer_init_method or init_method
        self.drop_path = DropPath(drop_path_prob) if drop_path_prob > 0.0 else nn.Identity()
        self.input_layernorm = LayerNorm(hidden_size, eps=layernorm_epsilon, layer_idx=layer_idx)
        self.self_attention = self.build_attention(is_cross_attention=False)
        self.post_attention_layernorm = LayerNorm(hidden_size, eps=layernorm_epsilon, layer_idx=layer_idx)
        if is_decoder:
            self.cross_attention = self.build_attention(is_cross_attention=True)
            self.post_cross_attention_layernorm = LayerNorm(hidden_size, eps=layernorm_epsilon, layer_idx=layer_idx)
        self.mlp = MLP(
            hidden_size,
            ffn_hidden_size,
            output_dropout_prob,
            init_method,
            output_layer_init_method=self.output_layer_init_method,
            bias_gelu_fusion=bias_gelu_fusion,
            bias_dropout_fusion=bias_dropout_fusion,
            layer_idx=layer_idx,
            activation=activation,
        )

    def build_attention(self, is_cross_attention: bool = False) -> nn.Module:
        """The attention of the layer; a class of one's own may give another."""
        return MultiheadAttention(
            self.hidden_size,
            self.num_attention_heads,
            is_cross_attention=is_cross_attention,
            attention_dropout_prob=self.attention_dropout_prob,
            output_dropout_prob=self.output_dropout_prob,
            init_method=self.init_method,
            output_layer_init_method=self.output_layer_init_method,
            bias_dropout_fusion=self.bias_dropout_fusion,
            scale_mask_softmax_fusion=self.scale_mask_softmax_fusion,
            apply_query_key_layer_scaling=self.apply_query_key_layer_scaling,
            attn_mask_type=self.attn_mask_type,
            layer_idx=self.layer_idx,
        )

    def forward(
        self,
        hidden_states: Any,
        attention_mask: Any = None,
        encoder_states: Any = None,
        encoder_attention_mask: Any = None,
        past_key_value: tuple[Any, ...] | None = None,
        use_cache: bool = False,
    ) -> Any:
        """The new states; with ``use_cache`` also what ``past_key_value`` takes at the next call: keys and values of
        self-attention, and in a decoder those of cross-attention behind them."""
        hidden_states = at_layer(hidden_states, self.layer_idx)
        normed = self.input_layernorm(hidden_states)
        told = {
            "attention_mask": attention_mask,
            "past_key_value": None if past_key_value is None else past_key_value[:2],
            "use_cache": use_cache,
        }
        hidden_states, cache = self._added(hidden_states, normed, self.self_attention(normed, **told), use_cache)
        normed = self.post_attention_layernorm(hidden_states)
        if self.is_decoder:
            told = {
                "attention_mask": encoder_attention_mask,
                "past_key_value": None if past_key_value is None else past_key_value[2:],
                "use_cache": use_cache,
            }
            found = self.cross_attention(normed, encoder_states, **told)
            hidden_states, others = self._added(hidden_states, normed, found, use_cache)
            normed, cache = self.post_cross_attention_layernorm(hidden_states), cache + others
        hidden_states, _ = self._added(hidden_states, normed, self.mlp(normed), False)
        return (hidden_states, cache) if use_cache else hidden_states

    def _added(self, before: Any, normed: Any, found: Any, has_cache: bool) -> tuple[Any, tuple[Any, ...]]:
        branch, cache = found if has_cache else (found, ())
        return (normed if self.apply_residual_post_layernorm else before) + self.drop_path(branch), tuple(cache)
