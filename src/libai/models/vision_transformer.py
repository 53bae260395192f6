"""ViT: a transformer over the patches of a picture, whose first token is classified."""

from __future__ import annotations

from typing import Any

import torch

from libai.config import configurable
from libai.layers import LayerNorm, Linear, PatchEmbedding, TransformerLayer
from libai.layers.laying import new_parameter
from libai.models.utils.given import given
from libai.models.utils.pictures import classified, growing, loss_of, truncated_normal
from libai.models.utils.stages import set_stages
from oneflow import nn


class VisionTransformer(nn.Module):
    """Called with pictures (N, channels, ``img_size``, ``img_size``) and in training with labels. Rates are those of
    dropout, of attention's, and of the drop paths, which grow from layer to layer; ``loss_func`` is cross entropy
    unless said."""

    @configurable
    def __init__(
        self,
        img_size: int | tuple[int, int] = 224,
        patch_size: int | tuple[int, int] = 16,
        in_chans: int = 3,
        embed_dim: int = 192,
        depth: int = 12,
        num_heads: int = 3,
        mlp_ratio: float = 4.0,
        drop_rate: float = 0.0,
        attn_drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        num_classes: int = 1000,
        loss_func: Any = None,
        layernorm_eps: float = 1e-5,
    ) -> None:
        super().__init__()
        self.num_classes, self.embed_dim = num_classes, embed_dim
        self.patch_embed = PatchEmbedding(img_size, patch_size, in_chans, embed_dim)
        self.cls_token = new_parameter((1, 1, embed_dim), truncated_normal)
        self.pos_embed = new_parameter((1, self.patch_embed.num_patches + 1, embed_dim), truncated_normal)
        self.pos_drop = nn.Dropout(drop_rate)
        self.blocks = nn.ModuleList(
            [
                TransformerLayer(
                    embed_dim,
                    int(embed_dim * mlp_ratio),
                    num_heads,
                    attention_dropout_prob=attn_drop_rate,
                    output_dropout_prob=drop_rate,
                    drop_path_prob=drop_path,
                    layernorm_epsilon=layernorm_eps,
                    init_method=truncated_normal,
                    layer_idx=layer,
                )
                for layer, drop_path in enumerate(growing(drop_path_rate, depth))
            ]
        )
        self.norm = LayerNorm(embed_dim, eps=layernorm_eps, layer_idx=-1)
        self.head = (
            Linear(embed_dim, num_classes, init_method=truncated_normal, layer_idx=-1)
            if num_classes > 0
            else nn.Identity()
        )
        self.loss_func = loss_of(loss_func)

    @classmethod
    def from_config(cls, cfg: Any) -> dict[str, Any]:
        return given(cfg, _OPTIONS)

    def no_weight_decay(self) -> set[str]:
        """Parameters that are no matrices although they have more than one dim."""
        return {"pos_embed", "cls_token"}

    def forward_features(self, x: Any) -> Any:
        """The first token behind all layers, (N, embed_dim)."""
        x = self.patch_embed(x)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1)
        x = self.pos_drop(x + self.pos_embed)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)[:, 0]

    def forward_head(self, x: Any) -> Any:
        """The scores of a picture's features."""
        return self.head(x)

    def forward(self, images: Any, labels: Any = None) -> dict[str, Any]:
        return classified(self, self.forward_head(self.forward_features(images)), labels)

    @staticmethod
    def set_pipeline_stage_id(model: Any) -> None:
        """Says which stage each layer belongs to."""
        set_stages(model)


_OPTIONS = (
    "img_size", "patch_size", "in_chans", "embed_dim", "depth", "num_heads", "mlp_ratio", "drop_rate", "attn_drop_rate", "drop_path_rate", "num_classes",
    "loss_func", "layernorm_eps",
)  # fmt: skip
