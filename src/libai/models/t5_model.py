"""T5 as LiBai has it: an encoder and a decoder with learned positions, which share a table of tokens with the head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

import oneflow as flow
from libai.config import configurable
from libai.inference.generator.decoders import t5_decoder
from libai.inference.generator.generation_utils import Generator
from libai.layers import Embedding, LayerNorm, LMLogits, ParallelCrossEntropyLoss, TransformerLayer, VocabEmbedding
from libai.layers.laying import Init
from libai.models.bert_model import masked_mean
from libai.models.gpt_model import require_positions
from libai.models.utils.given import given
from libai.models.utils.stages import set_stages
from libai.models.utils.weight_init import init_method_normal, scaled_init_method_normal
from oneflow.engine.core.errors import ArgumentError

nn = flow.nn


class ExtendedMask(nn.Module):
    """A mask of (batch, queries, keys) for all heads."""

    def forward(self, attention_mask: Any) -> Any:
        return attention_mask[:, None]


class T5Embedding(nn.Module):
    """Tokens and positions, added; dropout."""

    def __init__(
        self,
        hidden_size: int,
        vocab_size: int,
        max_sequence_length: int,
        embedding_dropout_prob: float,
        init_method: Init = nn.init.xavier_normal_,
        amp_enabled: bool = False,
    ) -> None:
        super().__init__()
        self.layer_idx = 0
        self.word_embeddings = VocabEmbedding(vocab_size, hidden_size, init_method=init_method, amp_enabled=amp_enabled)
        self.position_embeddings = Embedding(
            max_sequence_length, hidden_size, init_method=init_method, amp_enabled=amp_enabled
        )
        self.embedding_dropout = nn.Dropout(embedding_dropout_prob)

    def forward(self, input_ids: Any, past_length: int = 0) -> Any:
        stop = past_length + input_ids.shape[1]
        require_positions(stop, self.position_embeddings.num_embeddings)
        return self.embedding_dropout(
            self.word_embeddings(input_ids) + self.position_embeddings.weight[past_length:stop]
        )


class _Stack(nn.Module):
    """Layers and the norm behind them."""

    def __init__(self, layers: Sequence[TransformerLayer], hidden_size: int, eps: float, last: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.final_layernorm = LayerNorm(hidden_size, eps=eps, layer_idx=last)


class T5Model(nn.Module):
    """Scores of the next token at each position of the decoder. A pipeline counts ``2 * hidden_layers`` layers."""

    @configurable
    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        hidden_layers: int,
        num_attention_heads: int,
        intermediate_size: int,
        embedding_dropout_prob: float,
        hidden_dropout_prob: float,
        attention_probs_dropout_prob: float,
        max_position_embeddings: int,
        initializer_range: float = 0.02,
        layernorm_eps: float = 1e-12,
        bias_gelu_fusion: bool = False,
        bias_dropout_fusion: bool = False,
        scale_mask_softmax_fusion: bool = False,
        apply_query_key_layer_scaling: bool = True,
        apply_residual_post_layernorm: bool = False,
        amp_enabled: bool = False,
    ) -> None:
        super().__init__()
        first = init_method_normal(initializer_range)
        self.hidden_layers = hidden_layers
        self.embedding = T5Embedding(
            hidden_size, vocab_size, max_position_embeddings, embedding_dropout_prob, first, amp_enabled
        )
        self.extended_attn_mask = ExtendedMask()
        settings: dict[str, Any] = {
            "attention_dropout_prob": attention_probs_dropout_prob,
            "output_dropout_prob": hidden_dropout_prob,
            "layernorm_epsilon": layernorm_eps,
            "init_method": first,
            "output_layer_init_method": scaled_init_method_normal(initializer_range, hidden_layers),
            "bias_gelu_fusion": bias_gelu_fusion,
            "bias_dropout_fusion": bias_dropout_fusion,
            "scale_mask_softmax_fusion": scale_mask_softmax_fusion,
            "apply_query_key_layer_scaling": apply_query_key_layer_scaling,
            "apply_residual_post_layernorm": apply_residual_post_layernorm,
        }
        made = [
            TransformerLayer(
                hidden_size,
                intermediate_size,
                num_attention_heads,
                is_decoder=i >= hidden_layers,
                **settings,
                layer_idx=i,
            )
            for i in range(2 * hidden_layers)
        ]
        self.encoder = _Stack(made[:hidden_layers], hidden_size, layernorm_eps, hidden_layers - 1)
        self.decoder = _Stack(made[hidden_layers:], hidden_size, layernorm_eps, 2 * hidden_layers - 1)
        self.lm_head = LMLogits(vocab_size, bias=True)
        self.set_cache(None, None)

    @classmethod
    def from_config(cls, cfg: Any) -> dict[str, Any]:
        return {name: cfg[name] for name in _ARGUMENTS} | given(cfg, _OPTIONS)

    def forward(
        self,
        encoder_input_ids: Any,
        decoder_input_ids: Any,
        encoder_attn_mask: Any,
        decoder_attn_mask: Any,
        encoder_decoder_attn_mask: Any,
        use_cache: bool = False,
    ) -> Any:
        """Masks are (batch, queries, keys) with 1 where a key is looked at; that of the decoder says what stands behind
        a position as well.

        With ``use_cache`` the model keeps what the encoder gave, and the keys and values of the decoder: at the next
        such call the encoder is left out, and ``decoder_input_ids`` are those that follow. ``set_cache(None, None)``
        begins anew.
        """
        if not use_cache:
            states, past = self._encoded(encoder_input_ids, encoder_attn_mask), None
        else:
            states, past = self.encoder_states, self.past_key_values
            if states is None:
                states, past = self._encoded(encoder_input_ids, encoder_attn_mask), None
        length = decoder_input_ids.shape[1]
        hidden = self.embedding(decoder_input_ids, self.past_length if past is not None else 0)
        mask, others = (
            self.extended_attn_mask(one[:, -length:]) for one in (decoder_attn_mask, encoder_decoder_attn_mask)
        )
        caches = []
        for number, layer in enumerate(self.decoder.layers):
            hidden = layer(hidden, mask, states, others, None if past is None else past[number], use_cache)
            if use_cache:
                hidden, cache = hidden
                caches.append(cache)
        if use_cache:
            self.set_cache(states, caches)
        return self.lm_head(self.decoder.final_layernorm(hidden), self.embedding.word_embeddings.weight)

    def _encoded(self, ids: Any, mask: Any) -> Any:
        states, extended = self.embedding(ids), self.extended_attn_mask(mask)
        for layer in self.encoder.layers:
            states = layer(states, extended)
        return self.encoder.final_layernorm(states)

    def set_cache(self, encoder_states: Any, past_key_values: Sequence[tuple[Any, ...]] | None) -> None:
        """What calls with ``use_cache`` go on from: the encoder's states, and four tensors of each layer of the
        decoder. None forgets it."""
        if past_key_values is not None and len(past_key_values) != self.hidden_layers:
            raise ArgumentError(
                f"past_key_values has what each of {self.hidden_layers} layers of the decoder keeps, got "
                f"{len(past_key_values)}"
            )
        self.encoder_states, self.past_key_values = encoder_states, past_key_values
        self.past_length = 0 if past_key_values is None else past_key_values[0][0].shape[2]


_ARGUMENTS = (
    "vocab_size", "hidden_size", "hidden_layers", "num_attention_heads", "intermediate_size", "embedding_dropout_prob", "hidden_dropout_prob",
    "attention_probs_dropout_prob", "max_position_embeddings",
)  # fmt: skip
_OPTIONS = (
    "initializer_range", "layernorm_eps", "bias_gelu_fusion", "bias_dropout_fusion", "scale_mask_softmax_fusion", "apply_query_key_layer_scaling",
    "apply_residual_post_layernorm", "amp_enabled",
)  # fmt: skip


class T5Loss(nn.Module):
    """The loss of the tokens that the mask has."""

    def __init__(self) -> None:
        super().__init__()
        self.lm_loss = ParallelCrossEntropyLoss()

    def forward(self, logits: Any, lm_labels: Any, loss_mask: Any) -> dict[str, Any]:
        return {"masked_lm_loss": masked_mean(self.lm_loss(logits, lm_labels), loss_mask)}


class T5ForPreTraining(nn.Module, Generator):
    """``T5Model``: with labels its loss, else its scores. ``generate`` writes what the decoder says to what the encoder
    reads."""

    is_encoder_decoder = True

    def __init__(self, cfg: Any) -> None:
        super().__init__()
        self.cfg = cfg
        self.t5_model = T5Model(cfg)
        self.loss_func = T5Loss()

    def set_cache(self, encoder_states: Any, past_key_values: Sequence[tuple[Any, ...]] | None) -> None:
        """That of the model."""
        self.t5_model.set_cache(encoder_states, past_key_values)

    def forward(
        self,
        encoder_input_ids: Any,
        decoder_input_ids: Any,
        encoder_attn_mask: Any,
        decoder_attn_mask: Any,
        encoder_decoder_attn_mask: Any,
        lm_labels: Any = None,
        loss_mask: Any = None,
        use_cache: bool = False,
    ) -> dict[str, Any]:
        logits = self.t5_model(
            encoder_input_ids,
            decoder_input_ids,
            encoder_attn_mask,
            decoder_attn_mask,
            encoder_decoder_attn_mask,
            use_cache,
        )
        return {"prediction_scores": logits} if lm_labels is None else self.loss_func(logits, lm_labels, loss_mask)

    def prepare_inputs_for_generation(
        self, input_ids: Any, encoder_input_ids: Any = None, attention_mask: Any = None, **kwargs: Any
    ) -> dict[str, Any]:
        """What :meth:`forward` is called with for the tokens so far; ``attention_mask`` is that of the encoder's
        input."""
        mask = torch.ones_like(encoder_input_ids) if attention_mask is None else attention_mask
        each, tokens = torch.ones_like(encoder_input_ids), torch.ones_like(input_ids)
        return {
            "encoder_input_ids": encoder_input_ids,
            "decoder_input_ids": input_ids,
            "encoder_attn_mask": each[:, :, None] * mask[:, None, :],
            "decoder_attn_mask": (tokens[:, :, None] * tokens[:, None, :]).tril(),
            "encoder_decoder_attn_mask": tokens[:, :, None] * mask[:, None, :],
        }

    def cached_decoder(
        self, rows: int, capacity: int, encoder_input_ids: Any = None, attention_mask: Any = None, **model_kwargs: Any
    ) -> Any:
        """What generates faster than :meth:`forward`; None where a layer is of a class of one's own."""
        return t5_decoder(self, rows, capacity, encoder_input_ids, attention_mask)

    @staticmethod
    def set_pipeline_stage_id(model: Any) -> None:
        """Says which stage each layer belongs to."""
        set_stages(model)
