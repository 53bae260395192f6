"""PoolFormer: a transformer whose attention is an average over neighbours. The authors' names; timm's files load
too."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch

import oneflow.nn as nn
import oneflow.nn.functional as F
from flowvision.layers.blocks.mlp import ConvMlp as Mlp
from flowvision.layers.regularization.droppath import DropPath
from flowvision.layers.regularization.norm import LayerNorm2d
from flowvision.models.pretrained import accepts
from flowvision.models.registry import Create, variant
from oneflow import Tensor

LayerNormChannel = LayerNorm2d  # the published name


class PatchEmbed(nn.Module):
    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, padding: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(inputs, outputs, kernel, stride, padding)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(x)


class GroupNorm(nn.GroupNorm):
    """Over all channels and pixels of a picture."""

    def __init__(self, channels: int) -> None:
        super().__init__(1, channels)


class Pooling(nn.Module):
    """The mean over neighbours, less the pixel itself; beyond the edge there is nothing to count."""

    def __init__(self, pool_size: int = 3) -> None:
        super().__init__()
        self.pool_size = pool_size

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(x, self.pool_size, 1, self.pool_size // 2, count_include_pad=False) - x


class PoolFormerBlock(nn.Module):
    def __init__(self, dim: int, drop_path: float = 0.0, layer_scale: float = 1e-5) -> None:
        super().__init__()
        self.norm1, self.norm2 = GroupNorm(dim), GroupNorm(dim)
        self.token_mixer = Pooling()
        self.mlp = Mlp(dim, 4 * dim, act_layer=nn.GELU)
        self.drop_path = DropPath(drop_path)
        self.layer_scale_1 = nn.Parameter(layer_scale * torch.ones(dim))
        self.layer_scale_2 = nn.Parameter(layer_scale * torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path(self.layer_scale_1.view(-1, 1, 1) * self.token_mixer(self.norm1(x)))
        return x + self.drop_path(self.layer_scale_2.view(-1, 1, 1) * self.mlp(self.norm2(x)))


def basic_blocks(
    dim: int, index: int, layers: Sequence[int], drop_path_rate: float = 0.0, layer_scale_init_value: float = 1e-5
) -> nn.Sequential:
    """The blocks of stage ``index``; drop-path grows from the network's first block to its last."""
    done, last = sum(layers[:index]), max(sum(layers) - 1, 1)
    return nn.Sequential(
        *(
            PoolFormerBlock(dim, drop_path_rate * (done + number) / last, layer_scale_init_value)
            for number in range(layers[index])
        )
    )


class PoolFormer(nn.Module):
    def __init__(
        self,
        layers: Sequence[int],
        embed_dims: Sequence[int],
        num_classes: int = 1000,
        drop_path_rate: float = 0.0,
        layer_scale_init_value: float = 1e-5,
    ) -> None:
        super().__init__()
        self.patch_embed = PatchEmbed(3, embed_dims[0], 7, 4, 2)
        network: list[nn.Module] = []
        for stage, dim in enumerate(embed_dims):
            network.append(basic_blocks(dim, stage, layers, drop_path_rate, layer_scale_init_value))
            if stage < len(layers) - 1:
                network.append(PatchEmbed(dim, embed_dims[stage + 1], 3, 2, 1))
        self.network = nn.ModuleList(network)
        self.norm = GroupNorm(embed_dims[-1])
        self.head = nn.Linear(embed_dims[-1], num_classes)
        for module in (
            part for whole in self.modules() if isinstance(whole, (Mlp, PoolFormer)) for part in whole.children()
        ):
            if isinstance(module, (nn.Linear, nn.Conv2d)):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        accepts(self, _from_timm)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch_embed(x)
        for part in self.network:
            x = part(x)
        return self.head(self.norm(x).mean((2, 3)))


def _from_timm(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """stages.i.blocks.j and stages.i.downsample become network; stem, head.norm and head.fc lie at its ends."""
    found = {}
    for key, value in state.items():
        if match := re.fullmatch(r"stem\.conv\.(\w+)", key):
            key = f"patch_embed.proj.{match[1]}"
        elif match := re.fullmatch(r"stages\.(\d)\.downsample\.conv\.(\w+)", key):
            key = f"network.{2 * int(match[1]) - 1}.proj.{match[2]}"
        elif match := re.fullmatch(r"stages\.(\d)\.blocks\.(\d+)\.layer_scale(\d)\.scale", key):
            key = f"network.{2 * int(match[1])}.{match[2]}.layer_scale_{match[3]}"
        elif match := re.fullmatch(r"stages\.(\d)\.blocks\.(\d+)\.(.+)", key):
            key = f"network.{2 * int(match[1])}.{match[2]}.{match[3]}"
        elif match := re.fullmatch(r"head\.(norm|fc)\.(\w+)", key):
            key = f"{'norm' if match[1] == 'norm' else 'head'}.{match[2]}"
        found[key] = value
    return found


def _poolformer(name: str, layers: Sequence[int], dims: Sequence[int], scale: float) -> Create:
    return variant(f"poolformer_{name}", PoolFormer, layers=layers, embed_dims=dims, layer_scale_init_value=scale)


_SMALL, _MEDIUM = (64, 128, 320, 512), (96, 192, 384, 768)
poolformer_s12 = _poolformer("s12", (2, 2, 6, 2), _SMALL, 1e-5)
poolformer_s24 = _poolformer("s24", (4, 4, 12, 4), _SMALL, 1e-5)
poolformer_s36 = _poolformer("s36", (6, 6, 18, 6), _SMALL, 1e-6)
poolformer_m36 = _poolformer("m36", (6, 6, 18, 6), _MEDIUM, 1e-6)
poolformer_m48 = _poolformer("m48", (8, 8, 24, 8), _MEDIUM, 1e-6)
