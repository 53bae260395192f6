"""Llama."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from libai.models.utils.model_loader.base_loader import ModelLoaderHuggerFace, ModelLoaderLiBai
from libai.models.utils.model_loader.families import TOKENS, Family, require_one_of, special_tokens
from libai.models.utils.model_loader.rules import Rule, same


class LlamaFamily(Family):
    model_type, their_prefix, our_prefix = "llama", "model.", "model."
    ignored = r"rotary_emb\.inv_freq$"
    names = {
        "num_hidden_layers": "hidden_layers", "vocab_size": "vocab_size", "hidden_size": "hidden_size", "intermediate_size": "intermediate_size",
        "num_attention_heads": "num_attention_heads", "max_position_embeddings": "max_position_embeddings", "rms_norm_eps": "rms_norm_eps",
        "attention_dropout": "attention_dropout", "initializer_range": "initializer_range",
    }  # fmt: skip

    def forced(self, config: Mapping[str, Any]) -> dict[str, Any]:
        require_one_of(config, "hidden_act", ("silu",))
        rope = config.get("rope_parameters") or {}
        scaling = config.get("rope_scaling") or ({} if rope.get("rope_type", "default") == "default" else rope)
        return {
            "rope_theta": config.get("rope_theta", rope.get("rope_theta", 10000.0)),
            "rope_scaling": {name: value for name, value in scaling.items() if name != "rope_theta"} or None,
            **{name: config.get(name) for name in ("num_key_value_heads", "head_dim")},
            **special_tokens(config),
            **{name: bool(config.get(name)) for name in ("attention_bias", "mlp_bias", "tie_word_embeddings")},
        }

    def rules(self, cfg: Any) -> list[Rule]:
        biased = {"self_attn": cfg.get("attention_bias"), "mlp": cfg.get("mlp_bias")}
        found = [same("embed_tokens.weight", "embed_tokens.weight"), same("norm.weight", "norm.weight")]
        for i in range(cfg["hidden_layers"]):
            found += [
                same(name, name)
                for name in (f"layers.{i}.input_layernorm.weight", f"layers.{i}.post_attention_layernorm.weight")
            ]
            for part, names in (
                ("self_attn", ("q_proj", "k_proj", "v_proj", "o_proj")),
                ("mlp", ("gate_proj", "up_proj", "down_proj")),
            ):
                kinds = ("weight", "bias") if biased[part] else ("weight",)
                found += [
                    same(name, name) for one in names for kind in kinds for name in [f"layers.{i}.{part}.{one}.{kind}"]
                ]
        return (
            found
            if cfg.get("tie_word_embeddings")
            else [*found, same("lm_head.weight", "lm_head.weight", is_base=False)]
        )

    def described(self, model: Any) -> dict[str, Any]:
        inner = getattr(model, "model", model)
        first = inner.layers[0]
        attention = first.self_attn
        return {
            "hidden_layers": len(inner.layers), "vocab_size": inner.embed_tokens.num_embeddings, "hidden_size": inner.embed_tokens.embedding_dim,
            "intermediate_size": first.mlp.up_proj.out_features, "num_attention_heads": attention.heads, "num_key_value_heads": attention.key_heads,
            "head_dim": attention.head_dim, "max_position_embeddings": inner.max_position_embeddings, "rms_norm_eps": inner.norm.eps,
            "attention_dropout": attention.dropout, "attention_bias": attention.q_proj.bias is not None, "mlp_bias": first.mlp.up_proj.bias is not None,
            "rope_theta": inner.rope_theta, "rope_scaling": inner.rope_scaling, "tie_word_embeddings": bool(getattr(model, "is_tied", False)),
        }  # fmt: skip

    def their_config(self, model: Any, cfg: Mapping[str, Any]) -> dict[str, Any]:
        kept = ("num_key_value_heads", "head_dim", "attention_bias", "mlp_bias", "tie_word_embeddings")
        scaling = None if cfg["rope_scaling"] is None else dict(cfg["rope_scaling"])
        rope = {"rope_theta": cfg["rope_theta"], **(scaling or {"rope_type": "default"})}
        old = {"rope_theta": cfg["rope_theta"], "rope_scaling": scaling}  # as releases before 5 have it
        tokens = dict.fromkeys(TOKENS) | special_tokens(getattr(model, "cfg", None))
        return (
            super().their_config(model, cfg)
            | {name: cfg[name] for name in kept}
            | tokens
            | old
            | {"rope_parameters": rope, "hidden_act": "silu"}
        )

    def architecture(self, model: Any) -> str:
        return "LlamaForCausalLM" if hasattr(model, "lm_head") else "LlamaModel"


class LlamaLoaderHuggerFace(ModelLoaderHuggerFace):
    """``LlamaModel`` or ``LlamaForCausalLM`` from a folder of Llama."""

    family = LlamaFamily()


class LlamaLoaderLiBai(ModelLoaderLiBai):
    """``LlamaModel`` or ``LlamaForCausalLM`` from a folder of this package."""

    base_model_prefix = "model."
