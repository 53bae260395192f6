"""ResMLP: full connections over the patches of a picture, and over their channels."""

from __future__ import annotations

from typing import Any

import torch

from libai.config import configurable
from libai.layers import MLP, DropPath, Linear, PatchEmbedding
from libai.layers.laying import at_layer, new_parameter
from libai.models.utils.given import given
from libai.models.utils.pictures import classified, loss_of, recompute, truncated_normal
from libai.models.utils.stages import set_stages
from oneflow import nn


class Affine(nn.Module):
    """alpha * x + beta, a number each for every channel."""

    def __init__(self, dim: int, *, layer_idx: int = 0) -> None:
        super().__init__()
        self.layer_idx = layer_idx
        self.alpha = new_parameter((dim,), nn.init.ones_, layer_idx)
        self.beta = new_parameter((dim,), nn.init.zeros_, layer_idx)

    def forward(self, x: Any) -> Any:
        return torch.addcmul(self.beta, self.alpha, at_layer(x, self.layer_idx))


class layers_scale_mlp_blocks(nn.Module):
    """A connection over patches and one over channels, each added with a small weight for every channel."""

    def __init__(
        self,
        dim: int,
        drop: float = 0.0,
        drop_path: float = 0.0,
        init_values: float = 1e-4,
        num_patches: int = 196,
        *,
        layer_idx: int = 0,
    ) -> None:
        super().__init__()
        self.layer_idx = layer_idx
        self.norm1 = Affine(dim, layer_idx=layer_idx)
        self.attn = Linear(num_patches, num_patches, init_method=truncated_normal, layer_idx=layer_idx)
        self.drop_path = DropPath(drop_path) if drop_path > 0.0 else nn.Identity()
        self.norm2 = Affine(dim, layer_idx=layer_idx)
        self.mlp = MLP(dim, int(4.0 * dim), drop, truncated_normal, layer_idx=layer_idx)
        self.gamma_1 = new_parameter((dim,), lambda gamma: nn.init.constant_(gamma, init_values), layer_idx)
        self.gamma_2 = new_parameter((dim,), lambda gamma: nn.init.constant_(gamma, init_values), layer_idx)

    def forward(self, x: Any) -> Any:
        x = at_layer(x, self.layer_idx)
        x = x + self.drop_path(self.gamma_1 * self.attn(self.norm1(x).transpose(1, 2)).transpose(1, 2))
        return x + self.drop_path(self.gamma_2 * self.mlp(self.norm2(x)))


class ResMLP(nn.Module):
    """Called with pictures (N, channels, ``img_size``, ``img_size``) and in training with labels. Every layer has the
    same drop path; ``init_scale`` is what branches weigh at first; ``loss_func`` is cross entropy unless said."""

    @configurable
    def __init__(
        self,
        img_size: int | tuple[int, int] = 224,
        patch_size: int | tuple[int, int] = 16,
        in_chans: int = 3,
        embed_dim: int = 768,
        depth: int = 12,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        init_scale: float = 1e-4,
        num_classes: int = 1000,
        loss_func: Any = None,
    ) -> None:
        super().__init__()
        self.num_classes, self.num_features = num_classes, embed_dim
        self.patch_embed = PatchEmbedding(img_size, patch_size, in_chans, embed_dim)
        patches = self.patch_embed.num_patches
        self.blocks = nn.ModuleList(
            [
                layers_scale_mlp_blocks(embed_dim, drop_rate, drop_path_rate, init_scale, patches, layer_idx=i)
                for i in range(depth)
            ]
        )
        self.norm = Affine(embed_dim, layer_idx=-1)
        self.head = (
            Linear(embed_dim, num_classes, init_method=truncated_normal, layer_idx=-1)
            if num_classes > 0
            else nn.Identity()
        )
        self.loss_func = loss_of(loss_func)

    @classmethod
    def from_config(cls, cfg: Any) -> dict[str, Any]:
        return given(cfg, _OPTIONS)

    def forward_features(self, x: Any) -> Any:
        """The mean over patches behind all layers, (N, embed_dim)."""
        x = self.patch_embed(x)
        for block in self.blocks:
            x = block(x)
        return self.norm(x).mean(dim=1)

    def forward_head(self, x: Any) -> Any:
        """The scores of a picture's features."""
        return self.head(x)

    def forward(self, images: Any, labels: Any = None) -> dict[str, Any]:
        return classified(self, self.forward_head(self.forward_features(images)), labels)

    @staticmethod
    def set_pipeline_stage_id(model: Any) -> None:
        """Says which stage each layer belongs to."""
        set_stages(model)

    @staticmethod
    def set_activation_checkpoint(model: Any) -> None:
        """Marks every layer: its activations are computed again in the backward pass."""
        recompute(model, layers_scale_mlp_blocks)


_OPTIONS = (
    "img_size",
    "patch_size",
    "in_chans",
    "embed_dim",
    "depth",
    "drop_rate",
    "drop_path_rate",
    "init_scale",
    "num_classes",
    "loss_func",
)
