"""Swin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from libai.models.utils.model_loader.base_loader import ModelLoaderHuggerFace, ModelLoaderLiBai
from libai.models.utils.model_loader.families import Family, labels_of, require_one_of
from libai.models.utils.model_loader.rules import Rule, both, same, stacked


class SwinFamily(Family):
    model_type, their_prefix = "swin", "swin."
    ignored = r"relative_position_index$|relative_coords_table$"
    computed = r"relative_position_index$|relative_coords_table$|attn_mask$"
    names = {
        "image_size": "img_size", "patch_size": "patch_size", "num_channels": "in_chans", "embed_dim": "embed_dim", "depths": "depths", "num_heads": "num_heads",
        "window_size": "window_size", "mlp_ratio": "mlp_ratio", "qkv_bias": "qkv_bias", "hidden_dropout_prob": "drop_rate",
        "attention_probs_dropout_prob": "attn_drop_rate", "drop_path_rate": "drop_path_rate", "use_absolute_embeddings": "ape",
    }  # fmt: skip

    def settings(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return super().settings(config) | labels_of(config)

    def forced(self, config: Mapping[str, Any]) -> dict[str, Any]:
        require_one_of(config, "hidden_act", ("gelu",))
        require_one_of(config, "layer_norm_eps", (1e-5,))
        require_one_of(config, "use_absolute_embeddings", (False,))
        return {"patch_norm": True}

    def rules(self, cfg: Any) -> list[Rule]:
        found = both("patch_embed.proj", "embeddings.patch_embeddings.projection") + both(
            "patch_embed.norm", "embeddings.norm"
        )
        for stage, depth in enumerate(cfg["depths"]):
            for block in range(depth):
                place = f"blocks.{block}"
                found += self.block_rules(
                    f"layers.{stage}.{place}", f"encoder.layers.{stage}.{place}", cfg.get("qkv_bias", True)
                )
            if stage + 1 < len(cfg["depths"]):
                ours, theirs = f"layers.{stage}.downsample", f"encoder.layers.{stage}.downsample"
                found += [
                    same(f"{ours}.reduction.weight", f"{theirs}.reduction.weight"),
                    *both(f"{ours}.norm", f"{theirs}.norm"),
                ]
        return found + both("norm", "layernorm") + both("head", "classifier", is_base=False)

    def block_rules(self, ours: str, theirs: str, has_bias: bool) -> list[Rule]:
        """Of one block."""
        names = (
            ("norm1", "layernorm_before"),
            ("norm2", "layernorm_after"),
            ("attn.proj", "attention.output.dense"),
            ("mlp.dense_h_to_4h", "intermediate.dense"),
            ("mlp.dense_4h_to_h", "output.dense"),
        )
        found = [rule for mine, other in names for rule in both(f"{ours}.{mine}", f"{theirs}.{other}")]
        return found + self.attention_rules(f"{ours}.attn", f"{theirs}.attention.self", has_bias)

    def attention_rules(self, ours: str, theirs: str, has_bias: bool) -> list[Rule]:
        """Of the attention in windows, but for its last layer."""
        kinds = ("weight", "bias") if has_bias else ("weight",)
        qkv = [
            stacked(f"{ours}.qkv.{kind}", [f"{theirs}.{one}.{kind}" for one in ("query", "key", "value")])
            for kind in kinds
        ]
        return [same(f"{ours}.relative_position_bias_table", f"{theirs}.relative_position_bias_table"), *qkv]

    def described(self, model: Any) -> dict[str, Any]:
        patches, stages = model.patch_embed, model.layers
        attention = stages[0].blocks[0].attn
        return {
            "img_size": patches.img_size[0], "patch_size": patches.patch_size[0], "in_chans": patches.proj.weight.shape[1], "embed_dim": model.embed_dim,
            "depths": [len(stage.blocks) for stage in stages], "num_heads": [stage.blocks[0].attn.num_heads for stage in stages],
            "window_size": max(block.window_size for stage in stages for block in stage.blocks), "qkv_bias": self.has_bias(attention),
            "mlp_ratio": stages[0].blocks[0].mlp.dense_h_to_4h.out_features / attention.dim, "ape": model.ape,
        }  # fmt: skip

    def has_bias(self, attention: Any) -> bool:
        """Whether queries have a bias."""
        return attention.qkv.bias is not None

    def their_config(self, model: Any, cfg: Mapping[str, Any]) -> dict[str, Any]:
        more = {
            "hidden_act": "gelu",
            "layer_norm_eps": 1e-5,
            "id2label": {str(i): f"LABEL_{i}" for i in range(model.num_classes)},
        }
        return super().their_config(model, cfg) | more

    def architecture(self, model: Any) -> str:
        return "SwinForImageClassification"


class SwinLoaderHuggerFace(ModelLoaderHuggerFace):
    """``SwinTransformer`` from a folder of Swin."""

    family: Family = SwinFamily()


class SwinLoaderLiBai(ModelLoaderLiBai):
    """``SwinTransformer`` from a folder of LiBai."""
