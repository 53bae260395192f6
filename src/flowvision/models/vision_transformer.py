"""ViT and DeiT with timm's names; torchvision's files of ViT load too."""

from __future__ import annotations

import re
from typing import Any

import torch

import oneflow.nn as nn
import oneflow.nn.functional as F
from flowvision.layers.blocks.mlp import Mlp
from flowvision.layers.blocks.patch_embed import PatchEmbed
from flowvision.layers.regularization.droppath import DropPath
from flowvision.models.pretrained import accepts
from flowvision.models.registry import Create, variant
from oneflow import Tensor


class Attention(nn.Module):
    def __init__(
        self, dim: int, num_heads: int = 8, qkv_bias: bool = False, attn_drop: float = 0.0, proj_drop: float = 0.0
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, dim * 3, bias=qkv_bias)
        self.attn_drop = attn_drop
        self.proj = nn.Linear(dim, dim)
        self.proj_drop = nn.Dropout(proj_drop)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, dim = x.shape
        q, k, v = (
            self.qkv(x)
            .reshape(batch, tokens, 3, self.num_heads, dim // self.num_heads)
            .permute(2, 0, 3, 1, 4)
            .unbind(0)
        )
        x = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, dropout_p=self.attn_drop if self.training else 0.0
        )
        return self.proj_drop(self.proj(x.transpose(1, 2).reshape(batch, tokens, dim)))


class Block(nn.Module):
    def __init__(
        self,
        dim: int,
        num_heads: int,
        mlp_ratio: float,
        qkv_bias: bool,
        drop: float,
        attn_drop: float,
        drop_path: float,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.attn = Attention(dim, num_heads, qkv_bias, attn_drop, drop)
        self.drop_path = DropPath(drop_path)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = Mlp(dim, int(dim * mlp_ratio), drop=drop)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path(self.attn(self.norm1(x)))
        return x + self.drop_path(self.mlp(self.norm2(x)))


class VisionTransformer(nn.Module):
    """With ``distilled`` there is a second token and head, as in DeiT: the mean of both scores in evaluation, a pair of
    them in training."""

    def __init__(
        self,
        img_size: int = 224,
        patch_size: int = 16,
        in_chans: int = 3,
        num_classes: int = 1000,
        embed_dim: int = 768,
        depth: int = 12,
        num_heads: int = 12,
        mlp_ratio: float = 4.0,
        qkv_bias: bool = True,
        distilled: bool = False,
        drop_rate: float = 0.0,
        attn_drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
    ) -> None:
        super().__init__()
        self.patch_embed = PatchEmbed(img_size, patch_size, in_chans, embed_dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, embed_dim))
        self.dist_token = nn.Parameter(torch.zeros(1, 1, embed_dim)) if distilled else None
        self.pos_embed = nn.Parameter(torch.zeros(1, self.patch_embed.num_patches + 1 + distilled, embed_dim))
        self.pos_drop = nn.Dropout(drop_rate)
        drops = [drop_path_rate * number / max(depth - 1, 1) for number in range(depth)]
        self.blocks = nn.Sequential(
            *(Block(embed_dim, num_heads, mlp_ratio, qkv_bias, drop_rate, attn_drop_rate, drop) for drop in drops)
        )
        self.norm = nn.LayerNorm(embed_dim, eps=1e-6)
        self.head = nn.Linear(embed_dim, num_classes) if num_classes else nn.Identity()
        self.head_dist = nn.Linear(embed_dim, num_classes) if distilled and num_classes else None
        self._init()
        accepts(self, _from_torchvision)

    def _init(self) -> None:
        for token in (self.cls_token, self.dist_token, self.pos_embed):
            if token is not None:
                nn.init.trunc_normal_(token, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward_features(self, x: Tensor) -> Tensor:
        """The tokens behind the last norm."""
        x = self.patch_embed(x)
        tokens = [token.expand(x.shape[0], -1, -1) for token in (self.cls_token, self.dist_token) if token is not None]
        return self.norm(self.blocks(self.pos_drop(torch.cat([*tokens, x], 1) + self.pos_embed)))

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        x = self.forward_features(x)
        if self.head_dist is None:
            return self.head(x[:, 0])
        first, second = self.head(x[:, 0]), self.head_dist(x[:, 1])
        return (first, second) if self.training else (first + second) / 2


def resize_pos_embed(posemb: Tensor, posemb_new: Tensor, num_tokens: int = 1) -> Tensor:
    """Position embeddings of one picture size made fit for another: the grid is interpolated, the tokens before it
    stay."""
    tokens, grid = posemb[:, :num_tokens], posemb[0, num_tokens:]
    old, new = int(len(grid) ** 0.5), int((posemb_new.shape[1] - num_tokens) ** 0.5)
    pixels = F.interpolate(
        grid.reshape(1, old, old, -1).permute(0, 3, 1, 2), size=(new, new), mode="bicubic", align_corners=False
    )
    return torch.cat([tokens, pixels.permute(0, 2, 3, 1).reshape(1, new * new, -1)], 1)


_TORCHVISION = (
    (r"class_token", "cls_token"),
    (r"conv_proj\.(\w+)", r"patch_embed.proj.\1"),
    (r"encoder\.pos_embedding", "pos_embed"),
    (r"encoder\.ln\.(\w+)", r"norm.\1"),
    (r"heads\.head\.(\w+)", r"head.\1"),
    (r"encoder\.layers\.encoder_layer_(\d+)\.ln_(\d)\.(\w+)", r"blocks.\1.norm\2.\3"),
    (r"encoder\.layers\.encoder_layer_(\d+)\.self_attention\.in_proj_(\w+)", r"blocks.\1.attn.qkv.\2"),
    (r"encoder\.layers\.encoder_layer_(\d+)\.self_attention\.out_proj\.(\w+)", r"blocks.\1.attn.proj.\2"),
    (r"encoder\.layers\.encoder_layer_(\d+)\.mlp\.(?:0|linear_1)\.(\w+)", r"blocks.\1.mlp.fc1.\2"),
    (r"encoder\.layers\.encoder_layer_(\d+)\.mlp\.(?:3|linear_2)\.(\w+)", r"blocks.\1.mlp.fc2.\2"),
)


def _from_torchvision(state: dict[str, Tensor]) -> dict[str, Tensor]:
    found = {}
    for key, value in state.items():
        for pattern, target in _TORCHVISION:
            if re.fullmatch(pattern, key):
                key = re.sub(pattern, target, key)
                break
        found[key] = value
    return found


_SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"embed_dim": 192, "depth": 12, "num_heads": 3},
    "small": {"embed_dim": 384, "depth": 12, "num_heads": 6},
    "base": {"embed_dim": 768, "depth": 12, "num_heads": 12},
    "large": {"embed_dim": 1024, "depth": 24, "num_heads": 16},
    "huge": {"embed_dim": 1280, "depth": 32, "num_heads": 16},
    "giant": {"embed_dim": 1408, "depth": 40, "num_heads": 16, "mlp_ratio": 48 / 11},
    "gigantic": {"embed_dim": 1664, "depth": 48, "num_heads": 16, "mlp_ratio": 64 / 13},
}


def _vit(size: str, patch: int, pixels: int, ending: str = "", num_classes: int = 1000) -> Create:
    return variant(
        f"vit_{size}_patch{patch}_{pixels}{ending}",
        VisionTransformer,
        **_SIZES[size],
        patch_size=patch,
        img_size=pixels,
        num_classes=num_classes,
    )


def _deit(size: str, pixels: int, distilled: bool = False) -> Create:
    name = f"deit_{size}{'_distilled' if distilled else ''}_patch16_{pixels}"
    return variant(name, VisionTransformer, **_SIZES[size], img_size=pixels, distilled=distilled)


vit_tiny_patch16_224, vit_tiny_patch16_384 = _vit("tiny", 16, 224), _vit("tiny", 16, 384)
vit_small_patch32_224, vit_small_patch32_384 = _vit("small", 32, 224), _vit("small", 32, 384)
vit_small_patch16_224, vit_small_patch16_384 = _vit("small", 16, 224), _vit("small", 16, 384)
vit_base_patch32_224, vit_base_patch32_384 = _vit("base", 32, 224), _vit("base", 32, 384)
vit_base_patch16_224, vit_base_patch16_384 = _vit("base", 16, 224), _vit("base", 16, 384)
vit_base_patch8_224 = _vit("base", 8, 224)
vit_large_patch32_224, vit_large_patch32_384 = _vit("large", 32, 224), _vit("large", 32, 384)
vit_large_patch16_224, vit_large_patch16_384 = _vit("large", 16, 224), _vit("large", 16, 384)
vit_base_patch16_224_sam, vit_base_patch32_224_sam = _vit("base", 16, 224, "_sam"), _vit("base", 32, 224, "_sam")
vit_huge_patch14_224, vit_giant_patch14_224, vit_gigantic_patch14_224 = (
    _vit("huge", 14, 224),
    _vit("giant", 14, 224),
    _vit("gigantic", 14, 224),
)
_21K = ("_in21k", 21843)
vit_tiny_patch16_224_in21k, vit_small_patch32_224_in21k = _vit("tiny", 16, 224, *_21K), _vit("small", 32, 224, *_21K)
vit_small_patch16_224_in21k, vit_base_patch32_224_in21k = _vit("small", 16, 224, *_21K), _vit("base", 32, 224, *_21K)
vit_base_patch16_224_in21k, vit_base_patch8_224_in21k = _vit("base", 16, 224, *_21K), _vit("base", 8, 224, *_21K)
vit_large_patch32_224_in21k, vit_large_patch16_224_in21k = _vit("large", 32, 224, *_21K), _vit("large", 16, 224, *_21K)
vit_huge_patch14_224_in21k = _vit("huge", 14, 224, *_21K)
vit_base_patch16_224_miil_in21k = variant(
    "vit_base_patch16_224_miil_in21k", VisionTransformer, **_SIZES["base"], qkv_bias=False, num_classes=11221
)
vit_base_patch16_224_miil = variant("vit_base_patch16_224_miil", VisionTransformer, **_SIZES["base"], qkv_bias=False)
deit_tiny_patch16_224, deit_small_patch16_224, deit_base_patch16_224 = (
    _deit("tiny", 224),
    _deit("small", 224),
    _deit("base", 224),
)
deit_base_patch16_384 = _deit("base", 384)
deit_tiny_distilled_patch16_224, deit_small_distilled_patch16_224 = _deit("tiny", 224, True), _deit("small", 224, True)
deit_base_distilled_patch16_224, deit_base_distilled_patch16_384 = _deit("base", 224, True), _deit("base", 384, True)
