"""GPT: a decoder of learned positions whose head is its table of tokens."""

from __future__ import annotations

from typing import Any

import oneflow as flow
from libai.config import configurable
from libai.inference.generator.decoders import gpt_decoder
from libai.inference.generator.generation_utils import Generator, going_on
from libai.layers import Embedding, LayerNorm, LMLogits, ParallelCrossEntropyLoss, TransformerLayer, VocabEmbedding
from libai.layers.attention import AttnMaskType
from libai.layers.laying import Init, at_layer, made_like
from libai.models.utils.given import given
from libai.models.utils.stages import set_stages
from libai.models.utils.weight_init import init_method_normal, scaled_init_method_normal
from oneflow import nn
from oneflow.engine.core.errors import ArgumentError
from oneflow.nn import init

Caches = tuple[tuple[Any, ...], ...]


class CasualMask(nn.Module):
    """Which positions may be looked at: (1, 1, length, past + length) of 0 and 1; with a mask of keys, (batch, past +
    length), also by it."""

    def __init__(self, max_positions: int = 1024, *, layer_idx: int = 0) -> None:
        super().__init__()
        self.max_positions, self.layer_idx = max_positions, layer_idx

    def forward(self, input_ids: Any, past_length: int = 0, attention_mask: Any = None) -> Any:
        length = input_ids.shape[1]
        require_positions(past_length + length, self.max_positions)
        ids = at_layer(input_ids, self.layer_idx)
        mask = made_like(ids, flow.ones, length, past_length + length).tril(past_length)[None, None]
        return mask if attention_mask is None else mask * at_layer(attention_mask, self.layer_idx)[:, None, None, :]


def require_positions(asked: int, known: int) -> None:
    """Refuses more positions than a model has."""
    if asked > known:
        raise ArgumentError(
            f"{asked} positions, but the model has {known}; shorten the text, or build the model with more "
            f"(max_seq_length, max_position_embeddings)"
        )


class GPTEmbedding(nn.Module):
    """Tokens and positions, added; dropout."""

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        max_seq_length: int,
        init_method: Init = init.xavier_normal_,
        embedding_dropout_prob: float = 0.0,
        amp_enabled: bool = False,
    ) -> None:
        super().__init__()
        self.layer_idx = 0
        self.token_embeddings = VocabEmbedding(
            vocab_size, hidden_size, init_method=init_method, amp_enabled=amp_enabled
        )
        self.position_embeddings = Embedding(
            max_seq_length, hidden_size, init_method=init_method, amp_enabled=amp_enabled
        )
        self.dropout = nn.Dropout(embedding_dropout_prob)

    def forward(self, input_ids: Any, past_length: int = 0, position_ids: Any = None) -> Any:
        stop = past_length + input_ids.shape[1]
        require_positions(stop, self.position_embeddings.num_embeddings)
        positions = (
            self.position_embeddings.weight[past_length:stop]
            if position_ids is None
            else self.position_embeddings(position_ids)
        )
        return self.dropout(self.token_embeddings(input_ids) + positions)


class Transformer(nn.Module):
    """The layers, all causal, and the norm behind them."""

    def __init__(
        self,
        hidden_layers: int,
        hidden_size: int,
        ffn_hidden_size: int,
        num_attention_heads: int,
        attention_dropout_prob: float = 0.0,
        output_dropout_prob: float = 0.0,
        layernorm_epsilon: float = 1e-5,
        init_method: Init = init.xavier_normal_,
        output_layer_init_method: Init | None = None,
        bias_gelu_fusion: bool = False,
        bias_dropout_fusion: bool = False,
        scale_mask_softmax_fusion: bool = False,
        apply_query_key_layer_scaling: bool = False,
        apply_residual_post_layernorm: bool = False,
        activation: str = "gelu",
    ) -> None:
        super().__init__()
        self.hidden_layers = hidden_layers
        settings: dict[str, Any] = {
            "attention_dropout_prob": attention_dropout_prob,
            "output_dropout_prob": output_dropout_prob,
            "layernorm_epsilon": layernorm_epsilon,
            "init_method": init_method,
            "output_layer_init_method": output_layer_init_method,
            "bias_gelu_fusion": bias_gelu_fusion,
            "bias_dropout_fusion": bias_dropout_fusion,
            "scale_mask_softmax_fusion": scale_mask_softmax_fusion,
            "apply_query_key_layer_scaling": apply_query_key_layer_scaling,
            "apply_residual_post_layernorm": apply_residual_post_layernorm,
            "attn_mask_type": AttnMaskType.causal,
            "activation": activation,
        }
        self.layers = nn.ModuleList(
            [
                TransformerLayer(hidden_size, ffn_hidden_size, num_attention_heads, **settings, layer_idx=i)
                for i in range(hidden_layers)
            ]
        )
        self.layernorm_f = LayerNorm(hidden_size, eps=layernorm_epsilon, layer_idx=-1)

    def forward(
        self,
        hidden_states: Any,
        attention_mask: Any = None,
        past_key_values: Caches | None = None,
        use_cache: bool = False,
    ) -> Any:
        caches = []
        for number, layer in enumerate(self.layers):
            past = None if past_key_values is None else past_key_values[number]
            hidden_states = layer(hidden_states, attention_mask, past_key_value=past, use_cache=use_cache)
            if use_cache:
                hidden_states, cache = hidden_states
                caches.append(cache)
        found = self.layernorm_f(hidden_states)
        return (found, tuple(caches)) if use_cache else found


class GPTModel(nn.Module):
    """Scores of the next token at each position, (batch, length, vocabulary)."""

    @configurable
    def __init__(
        self,
        hidden_layers: int,
        vocab_size: int,
        hidden_size: int,
        ffn_hidden_size: int,
        num_attention_heads: int,
        max_seq_length: int = 1024,
        embedding_dropout_prob: float = 0.0,
        attention_dropout_prob: float = 0.0,
        output_dropout_prob: float = 0.0,
        layernorm_epsilon: float = 1e-5,
        initializer_range: float = 0.02,
        use_scaled_init_for_output_weights: bool = True,
        bias_gelu_fusion: bool = False,
        bias_dropout_fusion: bool = False,
        scale_mask_softmax_fusion: bool = False,
        apply_query_key_layer_scaling: bool = False,
        apply_residual_post_layernorm: bool = False,
        amp_enabled: bool = False,
        activation: str = "gelu",
    ) -> None:
        super().__init__()
        first = init_method_normal(initializer_range)
        self.embeddings = GPTEmbedding(
            vocab_size, hidden_size, max_seq_length, first, embedding_dropout_prob, amp_enabled
        )
        self.casual_mask = CasualMask(max_seq_length)
        self.transformer = Transformer(
            hidden_layers,
            hidden_size,
            ffn_hidden_size,
            num_attention_heads,
            attention_dropout_prob=attention_dropout_prob,
            output_dropout_prob=output_dropout_prob,
            layernorm_epsilon=layernorm_epsilon,
            init_method=first,
            output_layer_init_method=scaled_init_method_normal(initializer_range, hidden_layers)
            if use_scaled_init_for_output_weights
            else first,
            bias_gelu_fusion=bias_gelu_fusion,
            bias_dropout_fusion=bias_dropout_fusion,
            scale_mask_softmax_fusion=scale_mask_softmax_fusion,
            apply_query_key_layer_scaling=apply_query_key_layer_scaling,
            apply_residual_post_layernorm=apply_residual_post_layernorm,
            activation=activation,
        )
        self.lm_head = LMLogits(vocab_size, bias=False)

    @classmethod
    def from_config(cls, cfg: Any) -> dict[str, Any]:
        return {
            "hidden_layers": cfg.hidden_layers,
            "vocab_size": cfg.vocab_size,
            "hidden_size": cfg.hidden_size,
            "ffn_hidden_size": cfg.ffn_hidden_size,
            "num_attention_heads": cfg.num_attention_heads,
            **given(cfg, _OPTIONS),
        }

    def forward(
        self, input_ids: Any, attention_mask: Any = None, past_key_values: Caches | None = None, use_cache: bool = False
    ) -> Any:
        """``attention_mask``, (batch, all positions so far), has 0 where padding stands, on either side: positions
        count from the first token behind it. With ``use_cache`` the result is the scores, and what ``past_key_values``
        takes at the next call: keys and values of each layer."""
        past = 0 if past_key_values is None else past_key_values[0][0].shape[2]
        mask = positions = None
        if attention_mask is not None:
            mask = self.casual_mask(input_ids, past, attention_mask)
            positions = (attention_mask.long().cumsum(1) - 1).clamp(min=0)[:, past:]
        states = self.transformer(self.embeddings(input_ids, past, positions), mask, past_key_values, use_cache)
        states, caches = states if use_cache else (states, None)
        logits = self.lm_head(states, self.embeddings.token_embeddings.weight)
        return (logits, caches) if use_cache else logits


_OPTIONS = (
    "max_seq_length", "embedding_dropout_prob", "attention_dropout_prob", "output_dropout_prob", "layernorm_epsilon", "initializer_range",
    "use_scaled_init_for_output_weights", "bias_gelu_fusion", "bias_dropout_fusion", "scale_mask_softmax_fusion", "apply_query_key_layer_scaling",
    "apply_residual_post_layernorm", "amp_enabled", "activation",
)  # fmt: skip


class GPTLoss(nn.Module):
    """The mean cross entropy of all tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.lm_loss = ParallelCrossEntropyLoss()

    def forward(self, logits: Any, lm_labels: Any) -> dict[str, Any]:
        return {"lm_loss": self.lm_loss(logits, lm_labels).mean()}


class GPTForPreTraining(nn.Module, Generator):
    """``GPTModel``: with labels, the next tokens, its loss; else its scores. ``generate`` goes on with texts."""

    def __init__(self, cfg: Any) -> None:
        super().__init__()
        self.cfg = cfg
        self.GPT_model = GPTModel(cfg)
        self.loss_func = GPTLoss()

    def forward(
        self,
        input_ids: Any,
        labels: Any = None,
        attention_mask: Any = None,
        past_key_values: Caches | None = None,
        use_cache: bool = False,
    ) -> dict[str, Any]:
        """With ``use_cache`` and without labels also ``past_key_values``, for the next call."""
        if labels is not None:
            return self.loss_func(self.GPT_model(input_ids, attention_mask), labels)
        found = self.GPT_model(input_ids, attention_mask, past_key_values, use_cache)
        return (
            {"prediction_scores": found[0], "past_key_values": found[1]} if use_cache else {"prediction_scores": found}
        )

    def prepare_inputs_for_generation(self, input_ids: Any, **kwargs: Any) -> dict[str, Any]:
        """What :meth:`forward` is called with for the tokens so far."""
        return going_on(input_ids, **kwargs)

    def cached_decoder(self, rows: int, capacity: int, **model_kwargs: Any) -> Any:
        """What generates faster than :meth:`forward`; None where a layer is of a class of one's own."""
        return gpt_decoder(self, rows, capacity)

    @staticmethod
    def set_pipeline_stage_id(model: Any) -> None:
        """Says which stage each layer belongs to."""
        set_stages(model)
