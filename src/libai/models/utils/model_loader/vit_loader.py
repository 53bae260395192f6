"""ViT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from libai.models.utils.model_loader.base_loader import ModelLoaderHuggerFace, ModelLoaderLiBai
from libai.models.utils.model_loader.families import Family, activation_of, labels_of, require_one_of
from libai.models.utils.model_loader.rules import Rule, both, by_head, same


class ViTFamily(Family):
    model_type, their_prefix = "vit", "vit."
    ignored = r"^pooler\."
    names = {
        "image_size": "img_size", "patch_size": "patch_size", "num_channels": "in_chans", "hidden_size": "embed_dim", "num_hidden_layers": "depth",
        "num_attention_heads": "num_heads", "hidden_dropout_prob": "drop_rate", "attention_probs_dropout_prob": "attn_drop_rate",
    }  # fmt: skip

    def settings(self, config: Mapping[str, Any]) -> dict[str, Any]:
        found = super().settings(config) | labels_of(config)
        if "hidden_size" in config and "intermediate_size" in config:
            found["mlp_ratio"] = config["intermediate_size"] / config["hidden_size"]
        return found

    def forced(self, config: Mapping[str, Any]) -> dict[str, Any]:
        require_one_of(config, "hidden_act", ("gelu",))
        require_one_of(config, "qkv_bias", (True,))
        return {"layernorm_eps": config.get("layer_norm_eps", 1e-12)}

    def rules(self, cfg: Any) -> list[Rule]:
        found = [
            same("cls_token", "embeddings.cls_token"),
            same("pos_embed", "embeddings.position_embeddings"),
            *both("patch_embed.proj", "embeddings.patch_embeddings.projection"),
        ]
        for i in range(cfg["depth"]):
            ours, theirs = f"blocks.{i}", f"encoder.layer.{i}"
            for part in ("weight", "bias"):
                names = [f"{theirs}.attention.attention.{one}.{part}" for one in ("query", "key", "value")]
                found.append(by_head(f"{ours}.self_attention.query_key_value.{part}", names, cfg["num_heads"]))
            for mine, other in (
                ("input_layernorm", "layernorm_before"), ("post_attention_layernorm", "layernorm_after"), ("self_attention.dense", "attention.output.dense"),
                ("mlp.dense_h_to_4h", "intermediate.dense"), ("mlp.dense_4h_to_h", "output.dense"),
            ):  # fmt: skip
                found += both(f"{ours}.{mine}", f"{theirs}.{other}")
        return found + both("norm", "layernorm") + both("head", "classifier", is_base=False)

    def described(self, model: Any) -> dict[str, Any]:
        first, patches = model.blocks[0], model.patch_embed
        return {
            "img_size": patches.img_size[0], "patch_size": patches.patch_size[0], "in_chans": patches.proj.weight.shape[1], "embed_dim": model.embed_dim,
            "depth": len(model.blocks), "num_heads": first.num_attention_heads, "drop_rate": first.output_dropout_prob,
            "attn_drop_rate": first.attention_dropout_prob,
        }  # fmt: skip

    def their_config(self, model: Any, cfg: Mapping[str, Any]) -> dict[str, Any]:
        first = model.blocks[0]
        more = {
            "intermediate_size": first.ffn_hidden_size,
            "layer_norm_eps": first.layernorm_epsilon,
            "hidden_act": activation_of(first.mlp, {"gelu": "gelu"}),
        }
        return (
            super().their_config(model, cfg)
            | more
            | {"id2label": {str(i): f"LABEL_{i}" for i in range(model.num_classes)}}
        )

    def architecture(self, model: Any) -> str:
        return "ViTForImageClassification"


class ViTLoaderHuggerFace(ModelLoaderHuggerFace):
    """``VisionTransformer`` from a folder of ViT."""

    family = ViTFamily()


class ViTLoaderLiBai(ModelLoaderLiBai):
    """``VisionTransformer`` from a folder of LiBai."""
