"""RoBERTa."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from libai.layers.attention import AttnMaskType
from libai.models.utils.model_loader.bert_loader import BertFamily, BertLoaderHuggerFace, BertLoaderLiBai
from libai.models.utils.model_loader.rules import Rule, both, same


class RobertaFamily(BertFamily):
    model_type, their_prefix, our_prefix = "roberta", "roberta.", "roberta."
    ignored = r"position_ids$|^lm_head\.decoder\.|^embeddings\.token_type_ids$"
    names = {**BertFamily.names, "pad_token_id": "pad_token_id"}

    def head_rules(self) -> list[Rule]:
        return [
            *both("lm_head.dense", "lm_head.dense", is_base=False),
            *both("lm_head.layernorm", "lm_head.layer_norm", is_base=False),
            same("lm_head.lm_logits.bias", "lm_head.bias", is_base=False),
        ]

    def described(self, model: Any) -> dict[str, Any]:
        inner = getattr(model, "roberta", model)
        return super().described(model) | {"pad_token_id": inner.embeddings.pad_token_id}

    def their_config(self, model: Any, cfg: Mapping[str, Any]) -> dict[str, Any]:
        return super().their_config(model, cfg) | (
            {"is_decoder": True} if self.architecture(model) == "RobertaForCausalLM" else {}
        )

    def architecture(self, model: Any) -> str:
        if not hasattr(model, "lm_head"):
            return "RobertaModel"
        first = model.roberta.encoders[0].self_attention
        return "RobertaForCausalLM" if first.attn_mask_type is AttnMaskType.causal else "RobertaForMaskedLM"


class RobertaLoaderHuggerFace(BertLoaderHuggerFace):
    """``RobertaModel``, ``RobertaForPreTraining`` or ``RobertaForCausalLM`` from a folder of RoBERTa."""

    family = RobertaFamily()


class RobertaLoaderLiBai(BertLoaderLiBai):
    """``RobertaModel``, ``RobertaForPreTraining`` or ``RobertaForCausalLM`` from a folder of LiBai."""

    base_model_prefix = "roberta."
