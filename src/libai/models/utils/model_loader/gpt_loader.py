"""GPT-2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from libai.models.utils.model_loader.base_loader import ModelLoaderHuggerFace, ModelLoaderLiBai
from libai.models.utils.model_loader.families import (
    TOKENS,
    Family,
    activation_of,
    require_one_of,
    require_residual,
    special_tokens,
)
from libai.models.utils.model_loader.rules import Rule, both, by_head, by_head_turned, same, turned

_ACTIVATIONS = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu"}


class GPT2Family(Family):
    model_type, their_prefix, our_prefix = "gpt2", "transformer.", "GPT_model."
    ignored = r"^h\.\d+\.attn\.(masked_)?bias$|^lm_head\.weight$"
    names = {
        "n_layer": "hidden_layers", "n_embd": "hidden_size", "n_head": "num_attention_heads", "n_positions": "max_seq_length", "vocab_size": "vocab_size",
        "embd_pdrop": "embedding_dropout_prob", "attn_pdrop": "attention_dropout_prob", "resid_pdrop": "output_dropout_prob",
        "layer_norm_epsilon": "layernorm_epsilon", "initializer_range": "initializer_range",
    }  # fmt: skip

    def settings(self, config: Mapping[str, Any]) -> dict[str, Any]:
        found = super().settings(config)
        if "n_embd" in config:
            found["ffn_hidden_size"] = config.get("n_inner") or 4 * config["n_embd"]
        return found

    def forced(self, config: Mapping[str, Any]) -> dict[str, Any]:
        require_one_of(config, "activation_function", tuple(_ACTIVATIONS))
        require_one_of(config, "scale_attn_weights", (True,))
        require_one_of(config, "scale_attn_by_inverse_layer_idx", (False,))
        require_one_of(config, "tie_word_embeddings", (True,))
        activation = _ACTIVATIONS[config.get("activation_function", "gelu_new")]
        return {"activation": activation, "apply_residual_post_layernorm": False, **special_tokens(config)}

    def rules(self, cfg: Any) -> list[Rule]:
        found = [
            same("embeddings.token_embeddings.weight", "wte.weight"),
            same("embeddings.position_embeddings.weight", "wpe.weight"),
        ]
        for i in range(cfg["hidden_layers"]):
            ours, theirs = f"transformer.layers.{i}", f"h.{i}"
            found += both(f"{ours}.input_layernorm", f"{theirs}.ln_1") + both(
                f"{ours}.post_attention_layernorm", f"{theirs}.ln_2"
            )
            found.append(
                by_head_turned(
                    f"{ours}.self_attention.query_key_value.weight",
                    f"{theirs}.attn.c_attn.weight",
                    cfg["num_attention_heads"],
                )
            )
            found.append(
                by_head(
                    f"{ours}.self_attention.query_key_value.bias",
                    [f"{theirs}.attn.c_attn.bias"],
                    cfg["num_attention_heads"],
                )
            )
            for mine, other in (
                ("self_attention.dense", "attn.c_proj"),
                ("mlp.dense_h_to_4h", "mlp.c_fc"),
                ("mlp.dense_4h_to_h", "mlp.c_proj"),
            ):
                found += [
                    turned(f"{ours}.{mine}.weight", f"{theirs}.{other}.weight"),
                    same(f"{ours}.{mine}.bias", f"{theirs}.{other}.bias"),
                ]
        return found + both("transformer.layernorm_f", "ln_f")

    def described(self, model: Any) -> dict[str, Any]:
        inner = getattr(model, "GPT_model", model)
        first, embeddings = inner.transformer.layers[0], inner.embeddings
        require_residual(first, False, "GPT-2")
        return {
            "hidden_layers": len(inner.transformer.layers), "hidden_size": first.hidden_size, "num_attention_heads": first.num_attention_heads,
            "max_seq_length": embeddings.position_embeddings.num_embeddings, "vocab_size": embeddings.token_embeddings.num_embeddings,
            "embedding_dropout_prob": embeddings.dropout.p, "attention_dropout_prob": first.attention_dropout_prob,
            "output_dropout_prob": first.output_dropout_prob, "layernorm_epsilon": first.layernorm_epsilon, "ffn_hidden_size": first.ffn_hidden_size,
        }  # fmt: skip

    def their_config(self, model: Any, cfg: Mapping[str, Any]) -> dict[str, Any]:
        activation = activation_of(
            getattr(model, "GPT_model", model).transformer.layers[0].mlp, {"gelu_tanh": "gelu_new", "gelu": "gelu"}
        )
        more = {"n_inner": cfg["ffn_hidden_size"], "activation_function": activation, "tie_word_embeddings": True}
        tokens = dict.fromkeys(TOKENS) | special_tokens(getattr(model, "cfg", None))
        return super().their_config(model, cfg) | more | tokens

    def architecture(self, model: Any) -> str:
        return "GPT2LMHeadModel"


class GPT2LoaderHuggerFace(ModelLoaderHuggerFace):
    """``GPTModel`` or ``GPTForPreTraining`` from a folder of GPT-2."""

    family = GPT2Family()


class GPT2LoaderLiBai(ModelLoaderLiBai):
    """``GPTModel`` or ``GPTForPreTraining`` from a folder of LiBai."""

    base_model_prefix = "GPT_model."
