"""MLP-Mixer and gMLP, with timm's names: full connections over the patches, and over the channels."""

from __future__ import annotations

import oneflow.nn as nn
from flowvision.layers.blocks.mlp import GatedMlp, Mlp
from flowvision.layers.blocks.patch_embed import PatchEmbed, to_2tuple
from flowvision.layers.regularization.droppath import DropPath
from flowvision.layers.weight_init import lecun_normal_
from flowvision.models.registry import Create, variant
from oneflow import Tensor

pair = to_2tuple  # the published name


class MixerBlock(nn.Module):
    def __init__(self, dim: int, tokens: int, drop: float, drop_path: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp_tokens = Mlp(tokens, dim // 2, drop=drop)
        self.drop_path = DropPath(drop_path)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp_channels = Mlp(dim, dim * 4, drop=drop)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path(self.mlp_tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2))
        return x + self.drop_path(self.mlp_channels(self.norm2(x)))


class SpatialGatingUnit(nn.Module):
    """Half of the features, mixed over the patches, weighs the other half."""

    def __init__(self, dim: int, tokens: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim // 2, eps=1e-5)
        self.proj = nn.Linear(tokens, tokens)
        nn.init.normal_(self.proj.weight, std=1e-6)
        nn.init.ones_(self.proj.bias)

    def forward(self, x: Tensor) -> Tensor:
        values, gates = x.chunk(2, dim=-1)
        return values * self.proj(self.norm(gates).transpose(-1, -2)).transpose(-1, -2)


class SpatialGatingBlock(nn.Module):
    def __init__(self, dim: int, tokens: int, drop: float, drop_path: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.mlp_channels = GatedMlp(dim, dim * 6, gate_layer=lambda width: SpatialGatingUnit(width, tokens), drop=drop)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop_path(self.mlp_channels(self.norm(x)))


class MlpMixer(nn.Module):
    def __init__(
        self,
        block_layer: type[MixerBlock] | type[SpatialGatingBlock] = MixerBlock,
        img_size: int = 224,
        patch_size: int = 16,
        num_blocks: int = 8,
        embed_dim: int = 512,
        num_classes: int = 1000,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
    ) -> None:
        super().__init__()
        self.stem = PatchEmbed(img_size, patch_size, 3, embed_dim)
        self.blocks = nn.Sequential(
            *(block_layer(embed_dim, self.stem.num_patches, drop_rate, drop_path_rate) for _ in range(num_blocks))
        )
        self.norm = nn.LayerNorm(embed_dim, eps=1e-6)
        self.head = nn.Linear(embed_dim, num_classes)
        self._init()

    def _init(self) -> None:
        """The head begins at zero; a gate's projection keeps its own first values."""
        gates = {id(module.proj) for module in self.modules() if isinstance(module, SpatialGatingUnit)}
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                lecun_normal_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Linear) and id(module) not in gates:
                nn.init.xavier_uniform_(module.weight)
                nn.init.normal_(module.bias, std=1e-6)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.stem(x))).mean(1))


_SIZES = {
    "s": {"num_blocks": 8, "embed_dim": 512},
    "b": {"num_blocks": 12, "embed_dim": 768},
    "l": {"num_blocks": 24, "embed_dim": 1024},
}


def _mixer(size: str, patch: int, ending: str = "", num_classes: int = 1000) -> Create:
    return variant(
        f"mlp_mixer_{size}{patch}_224{ending}", MlpMixer, **_SIZES[size], patch_size=patch, num_classes=num_classes
    )


def _gmlp(size: str, width: int) -> Create:
    return variant(f"gmlp_{size}16_224", MlpMixer, block_layer=SpatialGatingBlock, num_blocks=30, embed_dim=width)


mlp_mixer_s16_224, mlp_mixer_s32_224 = _mixer("s", 16), _mixer("s", 32)
mlp_mixer_b16_224, mlp_mixer_b32_224 = _mixer("b", 16), _mixer("b", 32)
mlp_mixer_l16_224, mlp_mixer_l32_224 = _mixer("l", 16), _mixer("l", 32)
mlp_mixer_b16_224_in21k, mlp_mixer_l16_224_in21k = _mixer("b", 16, "_in21k", 21843), _mixer("l", 16, "_in21k", 21843)
mlp_mixer_b16_224_miil, mlp_mixer_b16_224_miil_in21k = _mixer("b", 16, "_miil"), _mixer("b", 16, "_miil_in21k", 11221)
gmlp_ti16_224, gmlp_s16_224, gmlp_b16_224 = _gmlp("ti", 128), _gmlp("s", 256), _gmlp("b", 512)
