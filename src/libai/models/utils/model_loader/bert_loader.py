"""BERT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from libai.models.utils.model_loader.base_loader import ModelLoaderHuggerFace, ModelLoaderLiBai
from libai.models.utils.model_loader.families import Family, activation_of, require_one_of, require_residual
from libai.models.utils.model_loader.rules import Rule, both, by_head, same


class BertFamily(Family):
    model_type, their_prefix, our_prefix = "bert", "bert.", "bert."
    ignored = r"position_ids$|^cls\.predictions\.decoder\.|^embeddings\.token_type_ids$"
    names = {
        "vocab_size": "vocab_size", "hidden_size": "hidden_size", "num_hidden_layers": "hidden_layers", "num_attention_heads": "num_attention_heads",
        "intermediate_size": "intermediate_size", "hidden_dropout_prob": "hidden_dropout_prob",
        "attention_probs_dropout_prob": "attention_probs_dropout_prob", "max_position_embeddings": "max_position_embeddings",
        "type_vocab_size": "num_tokentypes", "initializer_range": "initializer_range", "layer_norm_eps": "layernorm_eps",
    }  # fmt: skip

    def forced(self, config: Mapping[str, Any]) -> dict[str, Any]:
        require_one_of(config, "hidden_act", ("gelu",))
        require_one_of(config, "position_embedding_type", ("absolute",))
        return {"apply_residual_post_layernorm": True}

    def rules(self, cfg: Any) -> list[Rule]:
        layers = cfg["hidden_layers"]
        found = [
            same("embeddings.vocab_embeddings.weight", "embeddings.word_embeddings.weight"),
            same("embeddings.position_embeddings.weight", "embeddings.position_embeddings.weight"),
            same("embeddings.tokentype_embeddings.weight", "embeddings.token_type_embeddings.weight"),
            # Their norms stand behind a sum, ours before the next layer: the same place.
            *both("encoders.0.input_layernorm" if layers else "final_layernorm", "embeddings.LayerNorm"),
        ]
        for i in range(layers):
            ours, theirs = f"encoders.{i}", f"encoder.layer.{i}"
            for part in ("weight", "bias"):
                names = [f"{theirs}.attention.self.{one}.{part}" for one in ("query", "key", "value")]
                found.append(
                    by_head(f"{ours}.self_attention.query_key_value.{part}", names, cfg["num_attention_heads"])
                )
            found += both(f"{ours}.self_attention.dense", f"{theirs}.attention.output.dense")
            found += both(f"{ours}.post_attention_layernorm", f"{theirs}.attention.output.LayerNorm")
            found += both(f"{ours}.mlp.dense_h_to_4h", f"{theirs}.intermediate.dense") + both(
                f"{ours}.mlp.dense_4h_to_h", f"{theirs}.output.dense"
            )
            found += both(
                f"encoders.{i + 1}.input_layernorm" if i + 1 < layers else "final_layernorm",
                f"{theirs}.output.LayerNorm",
            )
        return found + both("pooler.dense", "pooler.dense") + self.head_rules()

    def head_rules(self) -> list[Rule]:
        """Of the heads for pretraining and for classification."""
        return [
            *both("cls_head.predictions.dense", "cls.predictions.transform.dense", is_base=False),
            *both("cls_head.predictions.layernorm", "cls.predictions.transform.LayerNorm", is_base=False),
            same("cls_head.lm_logits.bias", "cls.predictions.bias", is_base=False),
            *both("cls_head.seq_relationship", "cls.seq_relationship", is_base=False),
            *both("classifier", "classifier", is_base=False),
        ]

    def described(self, model: Any) -> dict[str, Any]:
        inner = getattr(model, self.our_prefix.removesuffix("."), model)
        first, embeddings = inner.encoders[0], inner.embeddings
        require_residual(first, True, "BERT and RoBERTa")
        return {
            "hidden_layers": len(inner.encoders), "hidden_size": first.hidden_size, "num_attention_heads": first.num_attention_heads,
            "intermediate_size": first.ffn_hidden_size, "vocab_size": embeddings.vocab_embeddings.num_embeddings,
            "max_position_embeddings": embeddings.position_embeddings.num_embeddings, "num_tokentypes": embeddings.num_tokentypes,
            "hidden_dropout_prob": first.output_dropout_prob, "attention_probs_dropout_prob": first.attention_dropout_prob,
            "layernorm_eps": first.layernorm_epsilon,
        }  # fmt: skip

    def their_config(self, model: Any, cfg: Mapping[str, Any]) -> dict[str, Any]:
        labels = (
            {}
            if not hasattr(model, "classifier")
            else {"id2label": {str(i): f"LABEL_{i}" for i in range(model.num_labels)}}
        )
        inner = getattr(model, self.our_prefix.removesuffix("."), model)
        activation = activation_of(inner.encoders[0].mlp, {"gelu": "gelu"})
        return super().their_config(model, cfg) | {"hidden_act": activation, "tie_word_embeddings": True} | labels

    def architecture(self, model: Any) -> str:
        if hasattr(model, "classifier"):
            return "BertForSequenceClassification"
        return "BertForPreTraining" if hasattr(model, "cls_head") else "BertModel"


class BertLoaderHuggerFace(ModelLoaderHuggerFace):
    """``BertModel``, ``BertForPreTraining`` or ``BertForClassification`` from a folder of BERT."""

    family: Family = BertFamily()


class BertLoaderLiBai(ModelLoaderLiBai):
    """``BertModel``, ``BertForPreTraining`` or ``BertForClassification`` from a folder of LiBai."""

    base_model_prefix = "bert."
