"""ConvNeXt with torchvision's names; files with the names of the paper's authors, or timm's, load too."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

import torch

import oneflow.nn as nn
from flowvision.layers.regularization.norm import LayerNorm2d
from flowvision.layers.regularization.stochastic_depth import StochasticDepth
from flowvision.models.pretrained import accepts, by_patterns
from flowvision.models.registry import Create, variant
from oneflow import Tensor
from oneflow.engine.core.errors import ArgumentError


class Permute(nn.Module):
    def __init__(self, *dims: int) -> None:
        super().__init__()
        self.dims = dims

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(*self.dims)


class LayerNorm(nn.LayerNorm):
    """Over the channels, which are the last dimension, or with ``data_format="channels_first"`` the second."""

    def __init__(self, normalized_shape: int, eps: float = 1e-6, data_format: str = "channels_last") -> None:
        if data_format not in ("channels_last", "channels_first"):
            raise ArgumentError(f"data_format is channels_last or channels_first, got {data_format!r}")
        super().__init__(normalized_shape, eps=eps)
        self.data_format = data_format

    def forward(self, x: Tensor) -> Tensor:
        return (
            super().forward(x)
            if self.data_format == "channels_last"
            else super().forward(x.movedim(1, -1)).movedim(-1, 1)
        )


class Block(nn.Module):
    def __init__(self, dim: int, layer_scale: float = 1e-6, drop: float = 0.0) -> None:
        """``layer_scale`` 0 leaves the scales out."""
        super().__init__()
        self.block = nn.Sequential(
            nn.Conv2d(dim, dim, 7, padding=3, groups=dim),
            Permute(0, 2, 3, 1),
            nn.LayerNorm(dim, eps=1e-6),
            nn.Linear(dim, 4 * dim),
            nn.GELU(),
            nn.Linear(4 * dim, dim),
            Permute(0, 3, 1, 2),
        )
        self.layer_scale = nn.Parameter(torch.ones(dim, 1, 1) * layer_scale) if layer_scale else None
        self.stochastic_depth = StochasticDepth(drop, "row")

    def forward(self, x: Tensor) -> Tensor:
        y = self.block(x)
        return self.stochastic_depth(y if self.layer_scale is None else self.layer_scale * y) + x


class ConvNeXt(nn.Module):
    def __init__(
        self,
        dims: Sequence[int],
        depths: Sequence[int],
        num_classes: int = 1000,
        drop_path_rate: float = 0.0,
        layer_scale_init_value: float = 1e-6,
    ) -> None:
        super().__init__()
        norm = partial(LayerNorm2d, eps=1e-6)
        features: list[nn.Module] = [nn.Sequential(nn.Conv2d(3, dims[0], 4, 4), norm(dims[0]))]
        done, total = 0, sum(depths)
        for stage, (dim, depth) in enumerate(zip(dims, depths)):
            if stage:
                features.append(nn.Sequential(norm(dims[stage - 1]), nn.Conv2d(dims[stage - 1], dim, 2, 2)))
            drops = [drop_path_rate * (done + number) / max(total - 1, 1) for number in range(depth)]
            features.append(nn.Sequential(*(Block(dim, layer_scale_init_value, drop) for drop in drops)))
            done += depth
        self.features = nn.Sequential(*features)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(norm(dims[-1]), nn.Flatten(1), nn.Linear(dims[-1], num_classes))
        _init(self)
        accepts(self, _from_authors)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)))


class ConvNeXtIsotropic(nn.Module):
    """One stage on patches of 16 pixels, as a ViT has it. The authors' names."""

    def __init__(
        self,
        depth: int = 18,
        dim: int = 384,
        num_classes: int = 1000,
        drop_path_rate: float = 0.0,
        layer_scale_init_value: float = 0.0,
    ) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, dim, 16, 16)
        self.blocks = nn.Sequential(
            *(
                Block(dim, layer_scale_init_value, drop_path_rate * number / max(depth - 1, 1))
                for number in range(depth)
            )
        )
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, num_classes)
        _init(self)
        accepts(self, _from_isotropic)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.stem(x)).mean((2, 3))))


def _init(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.trunc_normal_(module.weight, std=0.02)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


_INSIDE = {"dwconv": "block.0", "norm": "block.2", "pwconv1": "block.3", "pwconv2": "block.5"}
_FROM_TIMM = by_patterns(
    [
        (r"stem\.(\d\.\w+)", r"downsample_layers.0.\1"),
        (r"stages\.(\d)\.downsample\.(\d\.\w+)", r"downsample_layers.\1.\2"),
        (r"stages\.(\d)\.blocks\.(\d+)\.conv_dw\.(\w+)", r"stages.\1.\2.dwconv.\3"),
        (r"stages\.(\d)\.blocks\.(\d+)\.mlp\.fc(\d)\.(\w+)", r"stages.\1.\2.pwconv\3.\4"),
        (r"stages\.(\d)\.blocks\.(.+)", r"stages.\1.\2"),
        (r"head\.norm\.(\w+)", r"norm.\1"),
        (r"head\.fc\.(\w+)", r"head.\1"),
    ]
)


def _from_authors(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """downsample_layers.i.j, stages.i.j.dwconv, norm and head become features and classifier."""
    found = {}
    for key, value in _FROM_TIMM(state).items():
        if match := re.fullmatch(r"downsample_layers\.(\d)\.(\d)\.(\w+)", key):
            key = f"features.{2 * int(match[1])}.{match[2]}.{match[3]}"
        elif match := re.fullmatch(r"stages\.(\d)\.(\d+)\.gamma", key):
            key, value = f"features.{2 * int(match[1]) + 1}.{match[2]}.layer_scale", value.reshape(-1, 1, 1)
        elif match := re.fullmatch(r"stages\.(\d)\.(\d+)\.(\w+)\.(\w+)", key):
            key = f"features.{2 * int(match[1]) + 1}.{match[2]}.{_INSIDE.get(match[3], match[3])}.{match[4]}"
        elif match := re.fullmatch(r"(norm|head)\.(\w+)", key):
            key = f"classifier.{0 if match[1] == 'norm' else 2}.{match[2]}"
        found[key] = value
    return found


def _from_isotropic(state: dict[str, Tensor]) -> dict[str, Tensor]:
    found = {}
    for key, value in state.items():
        if match := re.fullmatch(r"blocks\.(\d+)\.gamma", key):
            key, value = f"blocks.{match[1]}.layer_scale", value.reshape(-1, 1, 1)
        elif (match := re.fullmatch(r"blocks\.(\d+)\.(\w+)\.(\w+)", key)) and match[2] in _INSIDE:
            key = f"blocks.{match[1]}.{_INSIDE[match[2]]}.{match[3]}"
        found[key] = value
    return found


_SIZES = {
    "tiny": ((96, 192, 384, 768), (3, 3, 9, 3), 0.1),
    "small": ((96, 192, 384, 768), (3, 3, 27, 3), 0.4),
    "base": ((128, 256, 512, 1024), (3, 3, 27, 3), 0.5),
    "large": ((192, 384, 768, 1536), (3, 3, 27, 3), 0.5),
    "xlarge": ((256, 512, 1024, 2048), (3, 3, 27, 3), 0.5),
}


def _convnext(size: str, ending: str, num_classes: int = 1000) -> Create:
    dims, depths, drop = _SIZES[size]
    return variant(
        f"convnext_{size}{ending}", ConvNeXt, dims=dims, depths=depths, num_classes=num_classes, drop_path_rate=drop
    )


convnext_tiny, convnext_small, convnext_base, convnext_large = (
    _convnext(size, "") for size in ("tiny", "small", "base", "large")
)
convnext_tiny_224, convnext_small_224 = _convnext("tiny", "_224"), _convnext("small", "_224")
convnext_base_224, convnext_base_384 = _convnext("base", "_224"), _convnext("base", "_384")
convnext_large_224, convnext_large_384 = _convnext("large", "_224"), _convnext("large", "_384")
convnext_base_224_22k, convnext_large_224_22k, convnext_xlarge_224_22k = (
    _convnext(size, "_224_22k", 21841) for size in ("base", "large", "xlarge")
)
convnext_base_224_22k_to_1k, convnext_large_224_22k_to_1k, convnext_xlarge_224_22k_to_1k = (
    _convnext(size, "_224_22k_to_1k") for size in ("base", "large", "xlarge")
)
convnext_base_384_22k_to_1k, convnext_large_384_22k_to_1k, convnext_xlarge_384_22k_to_1k = (
    _convnext(size, "_384_22k_to_1k") for size in ("base", "large", "xlarge")
)
convnext_iso_small_224 = variant("convnext_iso_small_224", ConvNeXtIsotropic, depth=18, dim=384, drop_path_rate=0.1)
convnext_iso_base_224 = variant("convnext_iso_base_224", ConvNeXtIsotropic, depth=18, dim=768, drop_path_rate=0.2)
convnext_iso_large_224 = variant(
    "convnext_iso_large_224", ConvNeXtIsotropic, depth=36, dim=1024, drop_path_rate=0.5, layer_scale_init_value=1e-6
)
