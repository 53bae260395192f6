"""SwinV2."""

from __future__ import annotations

from typing import Any

from libai.models.utils.model_loader.base_loader import ModelLoaderHuggerFace, ModelLoaderLiBai
from libai.models.utils.model_loader.rules import Rule, both, same, stacked
from libai.models.utils.model_loader.swin_loader import SwinFamily


class SwinV2Family(SwinFamily):
    model_type, their_prefix = "swinv2", "swinv2."
    names = {**SwinFamily.names, "pretrained_window_sizes": "pretrained_window_sizes"}

    def attention_rules(self, ours: str, theirs: str, has_bias: bool) -> list[Rule]:
        mlp = f"{theirs}.continuous_position_bias_mlp"
        found = [
            same(f"{ours}.logit_scale", f"{theirs}.logit_scale"),
            *both(f"{ours}.cpb_mlp.0", f"{mlp}.0"),
            same(f"{ours}.cpb_mlp.2.weight", f"{mlp}.2.weight"),
            stacked(f"{ours}.qkv.weight", [f"{theirs}.{one}.weight" for one in ("query", "key", "value")]),
        ]
        biases = [same(f"{ours}.q_bias", f"{theirs}.query.bias"), same(f"{ours}.v_bias", f"{theirs}.value.bias")]
        return found + biases if has_bias else found

    def described(self, model: Any) -> dict[str, Any]:
        return super().described(model) | {
            "pretrained_window_sizes": [stage.blocks[0].attn.pretrained_window_size[0] for stage in model.layers]
        }

    def has_bias(self, attention: Any) -> bool:
        return attention.q_bias is not None

    def architecture(self, model: Any) -> str:
        return "Swinv2ForImageClassification"


class SwinV2LoaderHuggerFace(ModelLoaderHuggerFace):
    """``SwinTransformerV2`` from a folder of SwinV2."""

    family = SwinV2Family()


class SwinV2LoaderLiBai(ModelLoaderLiBai):
    """``SwinTransformerV2`` from a folder of LiBai."""
