"""ResMLP, with timm's names: one full connection over the patches, two over the channels, affine maps for norms."""

from __future__ import annotations

import torch

import oneflow.nn as nn
from flowvision.layers.blocks.mlp import Mlp
from flowvision.layers.blocks.patch_embed import PatchEmbed
from flowvision.layers.regularization.droppath import DropPath
from flowvision.models.pretrained import accepts, by_patterns
from flowvision.models.registry import Create, variant
from oneflow import Tensor


class Affine(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, 1, dim))
        self.beta = nn.Parameter(torch.zeros(1, 1, dim))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addcmul(self.beta, self.alpha, x)


class ResBlock(nn.Module):
    def __init__(self, dim: int, tokens: int, init_values: float, drop: float, drop_path: float) -> None:
        super().__init__()
        self.norm1 = Affine(dim)
        self.linear_tokens = nn.Linear(tokens, tokens)
        self.drop_path = DropPath(drop_path)
        self.norm2 = Affine(dim)
        self.mlp_channels = Mlp(dim, dim * 4, drop=drop)
        self.ls1 = nn.Parameter(init_values * torch.ones(dim))
        self.ls2 = nn.Parameter(init_values * torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path(self.ls1 * self.linear_tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2))
        return x + self.drop_path(self.ls2 * self.mlp_channels(self.norm2(x)))


layers_scale_mlp_blocks = ResBlock  # the published name


class ResMLP(nn.Module):
    def __init__(
        self,
        img_size: int = 224,
        patch_size: int = 16,
        embed_dim: int = 384,
        depth: int = 12,
        init_scale: float = 1e-4,
        num_classes: int = 1000,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
    ) -> None:
        super().__init__()
        self.stem = PatchEmbed(img_size, patch_size, 3, embed_dim)
        self.blocks = nn.Sequential(
            *(ResBlock(embed_dim, self.stem.num_patches, init_scale, drop_rate, drop_path_rate) for _ in range(depth))
        )
        self.norm = Affine(embed_dim)
        self.head = nn.Linear(embed_dim, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
        # The authors' files: patch_embed, attn, mlp and gammas.
        names = by_patterns(
            [
                (r"patch_embed\.(.*)", r"stem.\1"),
                (r"(blocks\.\d+)\.attn\.(\w+)", r"\1.linear_tokens.\2"),
                (r"(blocks\.\d+)\.mlp\.(.*)", r"\1.mlp_channels.\2"),
                (r"(blocks\.\d+)\.gamma_(\d)", r"\1.ls\2"),
            ]
        )
        accepts(
            self,
            lambda state: {
                key: value.view(1, 1, -1) if key.endswith((".alpha", ".beta")) else value
                for key, value in names(state).items()
            },
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.stem(x))).mean(1))


def _resmlp(name: str, depth: int, init_scale: float, **more: int) -> Create:
    return variant(f"resmlp_{name}", ResMLP, depth=depth, init_scale=init_scale, **more)


resmlp_12_224, resmlp_12_distilled_224, resmlp_12_224_dino = (
    _resmlp(name, 12, 0.1) for name in ("12_224", "12_distilled_224", "12_224_dino")
)
resmlp_24_224, resmlp_24_distilled_224, resmlp_24_224_dino = (
    _resmlp(name, 24, 1e-5) for name in ("24_224", "24_distilled_224", "24_224_dino")
)
resmlp_36_224, resmlp_36_distilled_224 = (_resmlp(name, 36, 1e-6) for name in ("36_224", "36_distilled_224"))
_BIG = {"patch_size": 8, "embed_dim": 768}
resmlp_big_24_224, resmlp_big_24_224_in22k_to_1k, resmlp_big_24_distilled_224 = (
    _resmlp(name, 24, 1e-6, **_BIG) for name in ("big_24_224", "big_24_224_in22k_to_1k", "big_24_distilled_224")
)
