"""RoBERTa: BERT without the order of sentences, whose positions count from behind the padding."""

from __future__ import annotations

from typing import Any

from libai.config import configurable
from libai.layers import LayerNorm, Linear, LMLogits, ParallelCrossEntropyLoss, build_activation
from libai.layers.attention import AttnMaskType
from libai.layers.laying import Init
from libai.models import bert_model
from libai.models.bert_model import BertEmbeddings, BertExtendedAttnMask, BertModel, BertPooler, masked_mean
from libai.models.utils.given import given
from libai.models.utils.stages import set_stages
from libai.models.utils.weight_init import init_method_normal
from oneflow import nn
from oneflow.nn import init


class RobertaExtendedAttnMask(BertExtendedAttnMask):
    """BERT's."""


class RobertaEmbeddings(BertEmbeddings):
    """BERT's, with the positions of :meth:`create_position_ids_from_input_ids`."""

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        max_sequence_length: int,
        embedding_dropout_prob: float,
        num_tokentypes: int = 0,
        pad_token_id: int = 1,
        init_method: Init = init.xavier_normal_,
        amp_enabled: bool = False,
    ) -> None:
        super().__init__(
            vocab_size,
            hidden_size,
            max_sequence_length,
            embedding_dropout_prob,
            num_tokentypes,
            init_method,
            amp_enabled,
        )
        self.pad_token_id = pad_token_id

    def forward(self, input_ids: Any, tokentype_ids: Any = None, position_ids: Any = None) -> Any:
        if position_ids is None:
            position_ids = self.create_position_ids_from_input_ids(input_ids, self.pad_token_id)
        return super().forward(input_ids, tokentype_ids, position_ids)

    def create_position_ids_from_input_ids(self, input_ids: Any, pad_token_id: int) -> Any:
        """Tokens are numbered from ``pad_token_id + 1``; padding has ``pad_token_id``."""
        tokens = input_ids.ne(pad_token_id).long()
        return tokens.cumsum(1) * tokens + pad_token_id


class RobertaPooler(BertPooler):
    """BERT's."""


class RobertaLoss(nn.Module):
    """The loss of masked tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.lm_loss = ParallelCrossEntropyLoss()

    def forward(self, lm_output: Any, lm_labels: Any, loss_mask: Any) -> dict[str, Any]:
        return {"lm_loss": masked_mean(self.lm_loss(lm_output, lm_labels), loss_mask)}


class RobertaModel(BertModel):
    """The states of all positions, and the pooler's, or None."""

    @configurable
    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        hidden_layers: int,
        num_attention_heads: int,
        intermediate_size: int,
        hidden_dropout_prob: float,
        attention_probs_dropout_prob: float,
        max_position_embeddings: int,
        num_tokentypes: int = 2,
        add_pooling_layer: bool = True,
        initializer_range: float = 0.02,
        layernorm_eps: float = 1e-12,
        pad_token_id: int = 1,
        bias_gelu_fusion: bool = True,
        bias_dropout_fusion: bool = True,
        scale_mask_softmax_fusion: bool = True,
        apply_query_key_layer_scaling: bool = True,
        apply_residual_post_layernorm: bool = False,
        amp_enabled: bool = False,
    ) -> None:
        self._pad_token_id = pad_token_id
        super().__init__(
            vocab_size,
            hidden_size,
            hidden_layers,
            num_attention_heads,
            intermediate_size,
            hidden_dropout_prob,
            attention_probs_dropout_prob,
            max_position_embeddings,
            num_tokentypes,
            add_pooling_layer,
            initializer_range,
            layernorm_eps,
            bias_gelu_fusion,
            bias_dropout_fusion,
            scale_mask_softmax_fusion,
            apply_query_key_layer_scaling,
            apply_residual_post_layernorm,
            amp_enabled,
        )

    def _build_embeddings(
        self,
        vocab_size: int,
        hidden_size: int,
        positions: int,
        dropout: float,
        tokentypes: int,
        init_method: Init,
        amp_enabled: bool,
    ) -> BertEmbeddings:
        return RobertaEmbeddings(
            vocab_size, hidden_size, positions, dropout, tokentypes, self._pad_token_id, init_method, amp_enabled
        )

    @classmethod
    def from_config(cls, cfg: Any) -> dict[str, Any]:
        return bert_model.BertModel.from_config(cfg) | given(cfg, ("pad_token_id",))


class RobertaLMHead(nn.Module):
    """Scores of tokens."""

    def __init__(self, vocab_size: int, hidden_size: int, init_method: Init, layer_norm_eps: float) -> None:
        super().__init__()
        self.dense = Linear(hidden_size, hidden_size, parallel="data", init_method=init_method, layer_idx=-1)
        self.activation_func = build_activation("gelu")
        self.layernorm = LayerNorm(hidden_size, eps=layer_norm_eps, layer_idx=-1)
        self.lm_logits = LMLogits(vocab_size, bias=True)

    def forward(self, hidden_states: Any, word_embeddings_weight: Any) -> Any:
        return self.lm_logits(self.layernorm(self.activation_func(self.dense(hidden_states))), word_embeddings_weight)


class RobertaPreTrainedModel(nn.Module):
    """``RobertaModel`` without a pooler, and the head."""

    def __init__(self, cfg: Any) -> None:
        super().__init__()
        self.cfg = cfg
        self.roberta = RobertaModel(cfg, add_pooling_layer=False)
        self.lm_head = RobertaLMHead(
            cfg.vocab_size,
            cfg.hidden_size,
            init_method_normal(cfg.get("initializer_range", 0.02)),
            cfg.get("layernorm_eps", 1e-12),
        )
        self.loss_fc = RobertaLoss()

    def _scores(self, input_ids: Any, attention_mask: Any, tokentype_ids: Any, position_ids: Any = None) -> Any:
        states, _ = self.roberta(input_ids, attention_mask, tokentype_ids, position_ids)
        return self.lm_head(states, self.roberta.word_embeddings_weight())

    @staticmethod
    def set_pipeline_stage_id(model: Any) -> None:
        """Says which stage each layer belongs to."""
        set_stages(model)


class RobertaForPreTraining(RobertaPreTrainedModel):
    """With labels the loss of masked tokens, else the scores."""

    def forward(
        self,
        input_ids: Any,
        attention_mask: Any,
        tokentype_ids: Any = None,
        lm_labels: Any = None,
        loss_mask: Any = None,
    ) -> dict[str, Any]:
        scores = self._scores(input_ids, attention_mask, tokentype_ids)
        return {"prediction_scores": scores} if lm_labels is None else self.loss_fc(scores, lm_labels, loss_mask)


class RobertaForCausalLM(RobertaPreTrainedModel):
    """RoBERTa that looks at nothing behind a position: with labels, the text itself, the loss of the next tokens; else
    the scores."""

    def __init__(self, cfg: Any) -> None:
        super().__init__(cfg)
        for layer in self.roberta.encoders:
            layer.self_attention.attn_mask_type = AttnMaskType.causal

    def forward(
        self,
        input_ids: Any,
        attention_mask: Any,
        tokentype_ids: Any = None,
        position_ids: Any = None,
        labels: Any = None,
        loss_mask: Any = None,
    ) -> dict[str, Any]:
        """Labels below 0 do not count, and neither do those where ``loss_mask`` is 0."""
        scores = self._scores(input_ids, attention_mask, tokentype_ids, position_ids)
        if labels is None:
            return {"prediction_scores": scores}
        counted = (labels >= 0).float() if loss_mask is None else loss_mask.float() * (labels >= 0)
        return self.loss_fc(scores[:, :-1], labels[:, 1:], counted[:, 1:])
