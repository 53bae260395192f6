"""BERT: an encoder of learned positions and token types, its heads for pretraining, and a classifier."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F

from libai.config import configurable
from libai.layers import (
    Embedding,
    LayerNorm,
    Linear,
    LMLogits,
    ParallelCrossEntropyLoss,
    TransformerLayer,
    VocabEmbedding,
    build_activation,
)
from libai.layers.laying import Init, at_layer, laid
from libai.models.gpt_model import require_positions
from libai.models.utils.given import given
from libai.models.utils.stages import set_stages
from libai.models.utils.weight_init import init_method_normal, scaled_init_method_normal
from oneflow import nn
from oneflow.nn import init


class BertExtendedAttnMask(nn.Module):
    """Which positions look at which: of (batch, length) with 0 at padding, (batch, 1, length, length) with 1 where both
    are tokens."""

    def forward(self, attention_mask: Any) -> Any:
        return (attention_mask[:, None, :] * attention_mask[:, :, None])[:, None]


class BertEmbeddings(nn.Module):
    """Tokens, positions and token types, added; dropout. Token types that are not given are 0."""

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        max_sequence_length: int,
        embedding_dropout_prob: float,
        num_tokentypes: int = 0,
        init_method: Init = init.xavier_normal_,
        amp_enabled: bool = False,
    ) -> None:
        super().__init__()
        self.num_tokentypes, self.layer_idx = num_tokentypes, 0
        self.vocab_embeddings = VocabEmbedding(
            vocab_size, hidden_size, init_method=init_method, amp_enabled=amp_enabled
        )
        self.position_embeddings = Embedding(
            max_sequence_length, hidden_size, init_method=init_method, amp_enabled=amp_enabled
        )
        if num_tokentypes > 0:
            self.tokentype_embeddings = Embedding(
                num_tokentypes, hidden_size, init_method=init_method, amp_enabled=amp_enabled
            )
        self.embedding_dropout = nn.Dropout(embedding_dropout_prob)

    def forward(self, input_ids: Any, tokentype_ids: Any = None, position_ids: Any = None) -> Any:
        length = input_ids.shape[1]
        require_positions(length, self.position_embeddings.num_embeddings)
        positions = (
            self.position_embeddings.weight[:length] if position_ids is None else self.position_embeddings(position_ids)
        )
        found = self.vocab_embeddings(input_ids) + positions
        if self.num_tokentypes > 0:
            found = found + (
                self.tokentype_embeddings.weight[0]
                if tokentype_ids is None
                else self.tokentype_embeddings(tokentype_ids)
            )
        return self.embedding_dropout(found)

    def word_embeddings(self) -> Any:
        """The table of tokens."""
        return self.vocab_embeddings.weight


class BertLMPredictionHead(nn.Module):
    """What stands between the last layer and the scores of tokens."""

    def __init__(self, hidden_size: int, init_method: Init, layernorm_eps: float = 1e-5) -> None:
        super().__init__()
        self.dense = Linear(hidden_size, hidden_size, parallel="data", init_method=init_method, layer_idx=-1)
        self.activation_func = build_activation("gelu")
        self.layernorm = LayerNorm(hidden_size, eps=layernorm_eps, layer_idx=-1)

    def forward(self, hidden_states: Any) -> Any:
        return self.layernorm(self.activation_func(self.dense(hidden_states)))


class BertPooler(nn.Module):
    """The first token, through a layer with tanh."""

    def __init__(self, hidden_size: int, init_method: Init) -> None:
        super().__init__()
        self.dense = Linear(hidden_size, hidden_size, parallel="col", init_method=init_method, layer_idx=-1)
        self.activation_func = build_activation("tanh")

    def forward(self, hidden_states: Any) -> Any:
        return self.activation_func(self.dense(hidden_states[:, 0]))


def masked_mean(losses: Any, mask: Any) -> Any:
    """The mean of the losses of tokens, a vector, where the mask, (batch, length), is 1: over all ranks alike."""
    mask = laid(at_layer(mask, -1)).float()
    return (losses * mask.flatten()).sum() / (mask.sum() + 1e-7)


class BertLoss(nn.Module):
    """The loss of masked tokens, and with ``add_binary_head`` that of the order of sentences."""

    def __init__(self, add_binary_head: bool) -> None:
        super().__init__()
        self.add_binary_head = add_binary_head
        self.lm_loss = ParallelCrossEntropyLoss()

    def forward(
        self, lm_output: Any, lm_labels: Any, loss_mask: Any, binary_logits: Any, ns_labels: Any
    ) -> dict[str, Any]:
        found = {"lm_loss": masked_mean(self.lm_loss(lm_output, lm_labels), loss_mask)}
        if self.add_binary_head:
            found["sop_loss"] = F.cross_entropy(binary_logits, at_layer(ns_labels, -1).long())
        return found


class BertModel(nn.Module):
    """The states of all positions, and with ``add_pooling_layer`` that of the first one through the pooler, else
    None."""

    embeddings: BertEmbeddings

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
        bias_gelu_fusion: bool = True,
        bias_dropout_fusion: bool = True,
        scale_mask_softmax_fusion: bool = True,
        apply_query_key_layer_scaling: bool = True,
        apply_residual_post_layernorm: bool = False,
        amp_enabled: bool = False,
    ) -> None:
        super().__init__()
        first = init_method_normal(initializer_range)
        self.embeddings = self._build_embeddings(
            vocab_size, hidden_size, max_position_embeddings, hidden_dropout_prob, num_tokentypes, first, amp_enabled
        )
        self.extended_attn_mask = BertExtendedAttnMask()
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
        self.encoders = nn.ModuleList(
            [
                TransformerLayer(hidden_size, intermediate_size, num_attention_heads, **settings, layer_idx=i)
                for i in range(hidden_layers)
            ]
        )
        self.final_layernorm = LayerNorm(hidden_size, eps=layernorm_eps, layer_idx=-1)
        self.pooler = BertPooler(hidden_size, first) if add_pooling_layer else None

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
        return BertEmbeddings(vocab_size, hidden_size, positions, dropout, tokentypes, init_method, amp_enabled)

    @classmethod
    def from_config(cls, cfg: Any) -> dict[str, Any]:
        return {name: cfg[name] for name in _ARGUMENTS} | given(cfg, _OPTIONS)

    def forward(
        self, input_ids: Any, attention_mask: Any = None, tokentype_ids: Any = None, position_ids: Any = None
    ) -> tuple[Any, Any]:
        mask = None if attention_mask is None else self.extended_attn_mask(attention_mask)
        states = self.embeddings(input_ids, tokentype_ids, position_ids)
        for layer in self.encoders:
            states = layer(states, mask)
        states = self.final_layernorm(states)
        return states, None if self.pooler is None else self.pooler(states)

    def word_embeddings_weight(self) -> Any:
        """The table of tokens."""
        return self.embeddings.word_embeddings()


_ARGUMENTS = (
    "vocab_size", "hidden_size", "hidden_layers", "num_attention_heads", "intermediate_size", "hidden_dropout_prob", "attention_probs_dropout_prob",
    "max_position_embeddings",
)  # fmt: skip
_OPTIONS = (
    "num_tokentypes", "add_pooling_layer", "initializer_range", "layernorm_eps", "bias_gelu_fusion", "bias_dropout_fusion", "scale_mask_softmax_fusion",
    "apply_query_key_layer_scaling", "apply_residual_post_layernorm", "amp_enabled",
)  # fmt: skip


class BertPreTrainingHeads(nn.Module):
    """Scores of tokens and of the order of sentences; with labels their losses."""

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        init_method: Init,
        add_binary_head: bool = True,
        layernorm_eps: float = 1e-5,
    ) -> None:
        super().__init__()
        self.predictions = BertLMPredictionHead(hidden_size, init_method, layernorm_eps)
        self.seq_relationship = Linear(hidden_size, 2, parallel="data", init_method=init_method, layer_idx=-1)
        self.lm_logits = LMLogits(vocab_size, bias=True)
        self.loss_func = BertLoss(add_binary_head)

    def forward(
        self,
        sequence_output: Any,
        pooled_output: Any,
        word_embeddings_weight: Any,
        ns_labels: Any,
        lm_labels: Any,
        loss_mask: Any,
    ) -> dict[str, Any]:
        scores = self.lm_logits(self.predictions(sequence_output), word_embeddings_weight)
        order = None if pooled_output is None else self.seq_relationship(pooled_output)
        if lm_labels is not None:
            return self.loss_func(scores, lm_labels, loss_mask, order, ns_labels)
        return {"prediction_scores": scores, "seq_relationship_score": order}


class BertForPreTraining(nn.Module):
    """``BertModel`` with its heads: with labels ``lm_loss`` and, with ``cfg.add_binary_head``, ``sop_loss``; else their
    scores."""

    def __init__(self, cfg: Any) -> None:
        super().__init__()
        self.cfg = cfg
        self.bert = BertModel(cfg)
        told = given(cfg, ("add_binary_head", "layernorm_eps"))
        self.cls_head = BertPreTrainingHeads(
            cfg.vocab_size, cfg.hidden_size, init_method_normal(cfg.get("initializer_range", 0.02)), **told
        )

    def forward(
        self,
        input_ids: Any,
        attention_mask: Any,
        tokentype_ids: Any = None,
        ns_labels: Any = None,
        lm_labels: Any = None,
        loss_mask: Any = None,
    ) -> dict[str, Any]:
        states, pooled = self.bert(input_ids, attention_mask, tokentype_ids)
        return self.cls_head(states, pooled, self.bert.word_embeddings_weight(), ns_labels, lm_labels, loss_mask)

    @staticmethod
    def set_pipeline_stage_id(model: Any) -> None:
        """Says which stage each layer belongs to."""
        set_stages(model)


class BertForClassification(nn.Module):
    """``BertModel`` with a classifier of ``cfg.num_labels`` on its pooler: ``cls_loss`` where labels are given,
    ``logits`` unless it trains on them."""

    def __init__(self, cfg: Any) -> None:
        super().__init__()
        self.cfg = cfg
        self.num_labels = cfg.num_labels
        self.bert = BertModel(cfg)
        dropout = cfg.get("classifier_dropout")
        self.dropout = nn.Dropout(cfg.hidden_dropout_prob if dropout is None else dropout)
        self.classifier = Linear(
            cfg.hidden_size,
            cfg.num_labels,
            init_method=init_method_normal(cfg.get("initializer_range", 0.02)),
            layer_idx=-1,
        )

    def forward(
        self, input_ids: Any, attention_mask: Any, tokentype_ids: Any = None, labels: Any = None, **kwargs: Any
    ) -> dict[str, Any]:
        _, pooled = self.bert(input_ids, attention_mask, tokentype_ids)
        logits = self.classifier(self.dropout(pooled))
        if labels is None:
            return {"logits": logits}
        loss = F.cross_entropy(logits, at_layer(labels, -1).long().flatten())
        return {"cls_loss": loss} if self.training else {"cls_loss": loss, "logits": logits}

    @staticmethod
    def set_pipeline_stage_id(model: Any) -> None:
        """Says which stage each layer belongs to."""
        set_stages(model)
