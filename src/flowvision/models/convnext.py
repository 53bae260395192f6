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


class Permute(nn.Module):
    def __init__(self, *dims: int) -> None:
        super().__init__()
        self.dims = dims

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(*self.dims)


class Block(nn.Module):
    def __init__(self, dim: int, layer_scale: float, drop: float) -> None:
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
        self.layer_scale = nn.Parameter(torch.ones(dim, 1, 1) * layer_scale)
        self.stochastic_depth = StochasticDepth(drop, "row")

    def forward(self, x: Tensor) -> Tensor:
        return self.stochastic_depth(self.layer_scale * self.block(x)) + x


class ConvNeXt(nn.Module):
    def __init__(
        self, dims: Sequence[int], depths: Sequence[int], num_classes: int = 1000, drop_path_rate: float = 0.0, layer_scale_init_value: float = 1e-6
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
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        accepts(self, _from_authors)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)))


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


_SIZES = {
    "tiny": ((96, 192, 384, 768), (3, 3, 9, 3), 0.1),
    "small": ((96, 192, 384, 768), (3, 3, 27, 3), 0.4),
    "base": ((128, 256, 512, 1024), (3, 3, 27, 3), 0.5),
    "large": ((192, 384, 768, 1536), (3, 3, 27, 3), 0.5),
    "xlarge": ((256, 512, 1024, 2048), (3, 3, 27, 3), 0.5),
}


def _convnext(size: str, ending: str, num_classes: int = 1000) -> Create:
    dims, depths, drop = _SIZES[size]
    return variant(f"convnext_{size}{ending}", ConvNeXt, dims=dims, depths=depths, num_classes=num_classes, drop_path_rate=drop)


convnext_tiny, convnext_small, convnext_base, convnext_large = (_convnext(size, "") for size in ("tiny", "small", "base", "large"))
convnext_tiny_224, convnext_small_224 = _convnext("tiny", "_224"), _convnext("small", "_224")
convnext_base_224, convnext_base_384 = _convnext("base", "_224"), _convnext("base", "_384")
convnext_large_224, convnext_large_384 = _convnext("large", "_224"), _convnext("large", "_384")
convnext_base_224_22k, convnext_large_224_22k, convnext_xlarge_224_22k = (_convnext(size, "_224_22k", 21841) for size in ("base", "large", "xlarge"))
convnext_base_224_22k_to_1k, convnext_large_224_22k_to_1k, convnext_xlarge_224_22k_to_1k = (
    _convnext(size, "_224_22k_to_1k") for size in ("base", "large", "xlarge")
)
convnext_base_384_22k_to_1k, convnext_large_384_22k_to_1k, convnext_xlarge_384_22k_to_1k = (
    _convnext(size, "_384_22k_to_1k") for size in ("base", "large", "xlarge")
)
