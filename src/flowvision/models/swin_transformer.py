"""Swin transformer with torchvision's names; files with the names of the paper's authors (and timm's) load too."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import torch

import oneflow.nn as nn
import oneflow.nn.functional as F
from flowvision.layers.blocks.patch_embed import to_2tuple as to_2tuple  # three published names
from flowvision.layers.regularization.droppath import DropPath as DropPath
from flowvision.layers.regularization.droppath import drop_path as drop_path
from flowvision.layers.regularization.stochastic_depth import StochasticDepth
from flowvision.models.convnext import Permute
from flowvision.models.pretrained import accepts
from flowvision.models.registry import Create, variant
from oneflow import Tensor


def window_partition(x: Tensor, window_size: int) -> Tensor:
    """(batch, height, width, channels) to (batch * windows, size, size, channels)."""
    batch, height, width, channels = x.shape
    x = x.view(batch, height // window_size, window_size, width // window_size, window_size, channels)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, window_size, window_size, channels)


def window_reverse(windows: Tensor, window_size: int, height: int, width: int) -> Tensor:
    """The reverse of :func:`window_partition`."""
    rows, columns = height // window_size, width // window_size
    x = windows.view(-1, rows, columns, window_size, window_size, windows.shape[-1])
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, height, width, windows.shape[-1])


def relative_positions(window: int) -> Tensor:
    """For each pair of pixels of a window the row of the table of biases."""
    ys, xs = torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")
    y, x = ys.flatten(), xs.flatten()
    return ((y[:, None] - y[None, :] + window - 1) * (2 * window - 1) + x[:, None] - x[None, :] + window - 1).flatten()


class WindowAttention(nn.Module):
    """Attention inside windows, which are shifted by ``shift`` and wrap around; pixels that were apart do not see each
    other."""

    relative_position_index: Tensor

    def __init__(self, dim: int, window: int, shift: int, num_heads: int) -> None:
        super().__init__()
        self.window, self.shift, self.num_heads = window, shift, num_heads
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)
        self.relative_position_bias_table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, num_heads))
        self.register_buffer("relative_position_index", relative_positions(window))
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        _, height, width, dim = x.shape
        window = self.window
        x = F.pad(x, (0, 0, 0, -width % window, 0, -height % window))
        padded = x.shape[1], x.shape[2]
        shift = tuple(0 if size <= window else self.shift for size in padded)
        if any(shift):
            x = torch.roll(x, (-shift[0], -shift[1]), (1, 2))
        area = window * window
        tokens = window_partition(x, window).view(-1, area, dim)
        q, k, v = (
            self.qkv(tokens).view(-1, area, 3, self.num_heads, dim // self.num_heads).permute(2, 0, 3, 1, 4).unbind(0)
        )
        bias = (
            self.relative_position_bias_table[self.relative_position_index]
            .view(area, area, -1)
            .permute(2, 0, 1)
            .unsqueeze(0)
        )
        if any(shift):
            mask = _apart(padded, window, shift, x)
            bias = (mask.unsqueeze(1) + bias).repeat(x.shape[0], 1, 1, 1)
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype))
        y = self.proj(y.transpose(1, 2).reshape(-1, area, dim))
        y = window_reverse(y.view(-1, window, window, dim), window, *padded)
        if any(shift):
            y = torch.roll(y, shift, (1, 2))
        return y[:, :height, :width].contiguous()


def _apart(size: tuple[int, int], window: int, shift: tuple[int, ...], like: Tensor) -> Tensor:
    """(windows, area, area) with -100 where two pixels come from different sides of the picture."""
    regions = []
    for length, moved in zip(size, shift):
        at = torch.arange(length, device=like.device)
        regions.append(
            (at >= length - window).long() + (at >= length - moved).long() if moved else torch.zeros_like(at)
        )
    numbers = (3 * regions[0][:, None] + regions[1][None, :]).view(1, *size, 1)
    flat = window_partition(numbers, window).view(-1, window * window)
    return (flat[:, None, :] != flat[:, :, None]).to(like.dtype) * -100.0


class Mlp(nn.Sequential):
    def __init__(self, in_features: int, hidden_features: int, drop: float = 0.0) -> None:
        super().__init__(
            nn.Linear(in_features, hidden_features),
            nn.GELU(),
            nn.Dropout(drop),
            nn.Linear(hidden_features, in_features),
            nn.Dropout(drop),
        )


class SwinTransformerBlock(nn.Module):
    def __init__(self, dim: int, num_heads: int, window: int, shift: int, mlp_ratio: float, drop: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=1e-5)
        self.attn = WindowAttention(dim, window, shift, num_heads)
        self.stochastic_depth = StochasticDepth(drop, "row")
        self.norm2 = nn.LayerNorm(dim, eps=1e-5)
        self.mlp = Mlp(dim, int(dim * mlp_ratio))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.stochastic_depth(self.attn(self.norm1(x)))
        return x + self.stochastic_depth(self.mlp(self.norm2(x)))


class PatchMerging(nn.Module):
    """Four neighbours become one pixel of twice the channels."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)
        self.norm = nn.LayerNorm(4 * dim, eps=1e-5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.pad(x, (0, 0, 0, x.shape[2] % 2, 0, x.shape[1] % 2))
        x = torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1)
        return self.reduction(self.norm(x))


class BasicLayer(nn.Sequential):
    """A stage: ``depth`` blocks, every second of which shifts its windows; ``drop_path`` is of all, or of each."""

    def __init__(
        self,
        dim: int,
        depth: int,
        num_heads: int,
        window_size: int,
        mlp_ratio: float = 4.0,
        drop_path: float | Sequence[float] = 0.0,
    ) -> None:
        drops = [drop_path] * depth if isinstance(drop_path, float) else drop_path
        shifts = [window_size // 2 * (number % 2) for number in range(depth)]
        super().__init__(
            *(
                SwinTransformerBlock(dim, num_heads, window_size, shift, mlp_ratio, drop)
                for shift, drop in zip(shifts, drops)
            )
        )


class PatchEmbed(nn.Sequential):
    """Pictures to (batch, rows, columns, embed_dim)."""

    def __init__(self, patch_size: int = 4, in_chans: int = 3, embed_dim: int = 96) -> None:
        super().__init__(
            nn.Conv2d(in_chans, embed_dim, patch_size, patch_size),
            Permute(0, 2, 3, 1),
            nn.LayerNorm(embed_dim, eps=1e-5),
        )


class SwinTransformer(nn.Module):
    """Takes pictures of any size: windows at the edge are padded."""

    def __init__(
        self,
        embed_dim: int = 96,
        depths: Sequence[int] = (2, 2, 6, 2),
        num_heads: Sequence[int] = (3, 6, 12, 24),
        window_size: int = 7,
        patch_size: int = 4,
        mlp_ratio: float = 4.0,
        drop_path_rate: float = 0.1,
        num_classes: int = 1000,
    ) -> None:
        super().__init__()
        features: list[nn.Module] = [PatchEmbed(patch_size, 3, embed_dim)]
        done, total = 0, sum(depths)
        for stage, depth in enumerate(depths):
            dim = embed_dim * 2**stage
            drops = [drop_path_rate * (done + number) / max(total - 1, 1) for number in range(depth)]
            features.append(BasicLayer(dim, depth, num_heads[stage], window_size, mlp_ratio, drops))
            done += depth
            if stage < len(depths) - 1:
                features.append(PatchMerging(dim))
        self.features = nn.Sequential(*features)
        self.norm = nn.LayerNorm(dim, eps=1e-5)
        self.head = nn.Linear(dim, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        accepts(self, _from_authors)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.features(x)).mean((1, 2)))


def _from_authors(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """layers.i.blocks.j and layers.i.downsample become features; masks are made anew, indices flat.

    In timm's files since 0.9 a stage begins with its downsampling; before, as in the authors', it ends with it. Indices
    need not be there.
    """
    found = {}
    ends = any(key.startswith("layers.0.downsample.") for key in state)
    for key, value in state.items():
        if re.fullmatch(r"layers\.\d\.blocks\.\d+\.attn_mask", key):
            continue
        if match := re.fullmatch(r"patch_embed\.(proj|norm)\.(\w+)", key):
            key = f"features.0.{0 if match[1] == 'proj' else 2}.{match[2]}"
        elif match := re.fullmatch(r"layers\.(\d)\.blocks\.(\d+)\.(.+)", key):
            rest = match[3].replace("mlp.fc1", "mlp.0").replace("mlp.fc2", "mlp.3")
            key = f"features.{2 * int(match[1]) + 1}.{match[2]}.{rest}"
        elif match := re.fullmatch(r"layers\.(\d)\.downsample\.(.+)", key):
            key = f"features.{2 * int(match[1]) + (2 if ends else 0)}.{match[2]}"
        elif match := re.fullmatch(r"head\.fc\.(\w+)", key):
            key = f"head.{match[1]}"
        found[key] = value.flatten() if key.endswith("relative_position_index") else value
        if key.endswith(".relative_position_bias_table"):
            found.setdefault(key.replace("bias_table", "index"), relative_positions((math.isqrt(len(value)) + 1) // 2))
    return found


_SIZES = {
    "tiny": {"embed_dim": 96, "depths": (2, 2, 6, 2), "num_heads": (3, 6, 12, 24), "drop_path_rate": 0.2},
    "small": {"embed_dim": 96, "depths": (2, 2, 18, 2), "num_heads": (3, 6, 12, 24), "drop_path_rate": 0.3},
    "base": {"embed_dim": 128, "depths": (2, 2, 18, 2), "num_heads": (4, 8, 16, 32), "drop_path_rate": 0.5},
    "large": {"embed_dim": 192, "depths": (2, 2, 18, 2), "num_heads": (6, 12, 24, 48), "drop_path_rate": 0.2},
}


def _swin(size: str, window: int = 7, pixels: int = 224, ending: str = "") -> Create:
    return variant(
        f"swin_{size}_patch4_window{window}_{pixels}{ending}", SwinTransformer, **_SIZES[size], window_size=window
    )


swin_t, swin_s, swin_b = (
    variant(f"swin_{size[0]}", SwinTransformer, **_SIZES[size]) for size in ("tiny", "small", "base")
)
swin_tiny_patch4_window7_224, swin_small_patch4_window7_224 = _swin("tiny"), _swin("small")
swin_base_patch4_window7_224, swin_base_patch4_window12_384 = _swin("base"), _swin("base", 12, 384)
_22K = "_in22k_to_1k"
swin_base_patch4_window7_224_in22k_to_1k, swin_base_patch4_window12_384_in22k_to_1k = (
    _swin("base", ending=_22K),
    _swin("base", 12, 384, _22K),
)
swin_large_patch4_window7_224_in22k_to_1k, swin_large_patch4_window12_384_in22k_to_1k = (
    _swin("large", ending=_22K),
    _swin("large", 12, 384, _22K),
)
