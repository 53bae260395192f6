"""Swin v2: attention by angles, biases that a small network makes of distances, and norms behind the branches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from libai.config import configurable
from libai.layers import LayerNorm, Linear
from libai.layers.laying import at_layer, new_parameter, new_tensor
from libai.models import swin_transformer as v1
from libai.models.swin_transformer import Norm, PatchEmbed, SwinBase, attend_in_windows, quarters
from libai.models.utils.given import given
from libai.models.utils.pictures import truncated_normal
from libai.models.utils.windows import relative_positions, window_partition, window_reverse
from oneflow import nn

__all__ = [
    "BasicLayer",
    "PatchEmbed",
    "PatchMerging",
    "SwinTransformerBlock",
    "SwinTransformerV2",
    "WindowAttention",
    "window_partition",
    "window_reverse",
]

_LARGEST_SCALE = math.log(100.0)


def distances(window: tuple[int, int], pretrained: tuple[int, int]) -> torch.Tensor:
    """(1, 2h - 1, 2w - 1, 2): every distance in a window, logarithmically and so that the farthest of the
    ``pretrained`` window, if there was one, is 1."""
    sides = [pretrained[at] if pretrained[at] > 0 else window[at] for at in (0, 1)]
    ys, xs = torch.meshgrid(*(torch.arange(-(side - 1), side, dtype=torch.float32) for side in window), indexing="ij")
    table = 8 * torch.stack([ys / max(sides[0] - 1, 1), xs / max(sides[1] - 1, 1)], -1)[None]
    return table.sign() * torch.log2(table.abs() + 1.0) / math.log2(8)


class WindowAttention(nn.Module):
    """Attention among the pixels of a window by the cosine of queries and keys, times a learned scale; keys have no
    bias."""

    relative_coords_table: Any
    relative_position_index: Any

    def __init__(
        self,
        dim: int,
        window_size: tuple[int, int],
        num_heads: int,
        qkv_bias: bool = True,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        pretrained_window_size: Sequence[int] = (0, 0),
        fused_bias_add_dropout: bool = False,
        layer_idx: int = 0,
    ) -> None:
        super().__init__()
        self.dim, self.window_size, self.num_heads, self.layer_idx = dim, window_size, num_heads, layer_idx
        self.pretrained_window_size = (pretrained_window_size[0], pretrained_window_size[1])
        self.logit_scale = new_parameter(
            (num_heads, 1, 1), lambda scale: nn.init.constant_(scale, math.log(10.0)), layer_idx
        )
        self.cpb_mlp = nn.Sequential(
            Linear(2, 512, init_method=truncated_normal, layer_idx=layer_idx),
            nn.ReLU(),
            Linear(512, num_heads, bias=False, init_method=truncated_normal, layer_idx=layer_idx),
        )
        table, index = distances(window_size, self.pretrained_window_size), relative_positions(window_size)
        self.register_buffer(
            "relative_coords_table", new_tensor(table.shape, lambda made: made.copy_(table), layer_idx)
        )
        self.register_buffer(
            "relative_position_index",
            new_tensor(index.shape, lambda made: made.copy_(index), layer_idx, dtype=torch.int64),
        )
        self.qkv = Linear(dim, dim * 3, bias=False, init_method=truncated_normal, layer_idx=layer_idx)
        self.q_bias = new_parameter((dim,), nn.init.zeros_, layer_idx) if qkv_bias else None
        self.v_bias = new_parameter((dim,), nn.init.zeros_, layer_idx) if qkv_bias else None
        self.attn_drop = attn_drop
        self.proj = Linear(dim, dim, init_method=truncated_normal, layer_idx=layer_idx)
        self.proj_drop = nn.Dropout(proj_drop)

    def forward(self, x: Any, mask: Any = None) -> Any:
        """(N * windows, pixels, dim) to the same."""
        x = at_layer(x, self.layer_idx)
        count, pixels, dim = x.shape
        qkv = self.qkv(x)
        if self.q_bias is not None and self.v_bias is not None:
            qkv = qkv + torch.cat([self.q_bias, torch.zeros_like(self.q_bias), self.v_bias])
        query, key, value = (
            qkv.view(count, pixels, 3, self.num_heads, dim // self.num_heads).permute(2, 0, 3, 1, 4).unbind(0)
        )
        query = F.normalize(query, dim=-1) * self.logit_scale.clamp(max=_LARGEST_SCALE).exp()
        found = attend_in_windows(
            query,
            F.normalize(key, dim=-1),
            value,
            self._bias(pixels),
            mask,
            self.attn_drop if self.training else 0.0,
            1.0,
        )
        return self.proj_drop(self.proj(found.transpose(1, 2).reshape(count, pixels, dim)))

    def _bias(self, pixels: int) -> Any:
        # The table is no batch: no layer may cut its first dim among ranks, so the connections are written out.
        first: Any = self.cpb_mlp[0]
        last: Any = self.cpb_mlp[2]
        table = F.linear(
            F.relu(F.linear(self.relative_coords_table.flatten(0, 2), first.weight, first.bias)), last.weight
        )
        return 16 * torch.sigmoid(
            table[self.relative_position_index.flatten()].view(pixels, pixels, -1).permute(2, 0, 1)
        )


class SwinTransformerBlock(v1.SwinTransformerBlock):
    """Attention in windows and an MLP, each with a norm behind it, added to what came in. The norms give nothing at
    first."""

    def __init__(
        self,
        dim: int,
        input_resolution: tuple[int, int],
        num_heads: int,
        window_size: int = 7,
        shift_size: int = 0,
        mlp_ratio: float = 4.0,
        qkv_bias: bool = True,
        drop: float = 0.0,
        attn_drop: float = 0.0,
        drop_path: float = 0.0,
        act_layer: Callable[[], nn.Module] = nn.GELU,
        norm_layer: Norm = LayerNorm,
        pretrained_window_size: int = 0,
        layer_idx: int = 0,
    ) -> None:
        nn.Module.__init__(self)
        self._lay_windows(input_resolution, window_size, shift_size, layer_idx)
        pair, pretrained = (self.window_size, self.window_size), (pretrained_window_size, pretrained_window_size)
        attention = partial(
            WindowAttention, dim, pair, num_heads, qkv_bias, attn_drop, drop, pretrained, layer_idx=layer_idx
        )
        self._build(dim, attention, mlp_ratio, drop, drop_path, act_layer, norm_layer)
        for norm in (self.norm1, self.norm2):
            for parameter in norm.parameters():
                parameter.data.zero_()

    def forward(self, x: Any) -> Any:
        x = at_layer(x, self.layer_idx)
        x = x + self.drop_path(self.norm1(self.in_windows(x)))
        return x + self.drop_path(self.norm2(self.mlp(x)))


class PatchMerging(v1.PatchMerging):
    """Four neighbours become one pixel of twice the channels; the norm stands behind."""

    _normed = 2

    def forward(self, x: Any) -> Any:
        return self.norm(self.reduction(quarters(at_layer(x, self.layer_idx), self.input_resolution)))


class BasicLayer(v1.BasicLayer):
    """One stage: blocks on maps of one size, every second one shifted, and what makes the maps smaller."""

    def __init__(
        self,
        dim: int,
        input_resolution: tuple[int, int],
        depth: int,
        num_heads: int,
        window_size: int,
        mlp_ratio: float = 4.0,
        qkv_bias: bool = True,
        drop: float = 0.0,
        attn_drop: float = 0.0,
        drop_path: float | Sequence[float] = 0.0,
        norm_layer: Norm = LayerNorm,
        downsample: Callable[..., nn.Module] | None = None,
        pretrained_window_size: int = 0,
        layer_id_offset: int = 0,
    ) -> None:
        nn.Module.__init__(self)

        def block(shift: int, dropped: float, layer_idx: int) -> SwinTransformerBlock:
            told: dict[str, Any] = {
                "norm_layer": norm_layer,
                "pretrained_window_size": pretrained_window_size,
                "layer_idx": layer_idx,
            }
            return SwinTransformerBlock(
                dim,
                input_resolution,
                num_heads,
                window_size,
                shift,
                mlp_ratio,
                qkv_bias,
                drop,
                attn_drop,
                dropped,
                **told,
            )

        self._build(
            block, dim, input_resolution, depth, window_size, drop_path, norm_layer, downsample, layer_id_offset
        )


class SwinTransformerV2(SwinBase):
    """Called with pictures (N, channels, ``img_size``, ``img_size``) and in training with labels; ``depths``,
    ``num_heads`` and ``pretrained_window_sizes`` have a number for each stage. Only MLPs are cut by tensor parallelism.
    ``loss_func`` is cross entropy unless said."""

    @configurable
    def __init__(
        self,
        img_size: int | tuple[int, int] = 224,
        patch_size: int | tuple[int, int] = 4,
        in_chans: int = 3,
        num_classes: int = 1000,
        embed_dim: int = 96,
        depths: Sequence[int] = (2, 2, 6, 2),
        num_heads: Sequence[int] = (3, 6, 12, 24),
        window_size: int = 7,
        mlp_ratio: float = 4.0,
        qkv_bias: bool = True,
        drop_rate: float = 0.0,
        attn_drop_rate: float = 0.0,
        drop_path_rate: float = 0.1,
        norm_layer: Norm = LayerNorm,
        ape: bool = False,
        patch_norm: bool = True,
        pretrained_window_sizes: Sequence[int] = (0, 0, 0, 0),
        loss_func: Any = None,
    ) -> None:
        super().__init__()

        def stage(
            number: int, dim: int, resolution: tuple[int, int], drops: list[float], is_last: bool, offset: int
        ) -> BasicLayer:
            merge = None if is_last else PatchMerging
            heads, pretrained = num_heads[number], pretrained_window_sizes[number]
            rates = (drop_rate, attn_drop_rate, drops)
            return BasicLayer(
                dim,
                resolution,
                depths[number],
                heads,
                window_size,
                mlp_ratio,
                qkv_bias,
                *rates,
                norm_layer,
                merge,
                pretrained,
                offset,
            )

        self._build(
            stage,
            img_size,
            patch_size,
            in_chans,
            num_classes,
            embed_dim,
            depths,
            drop_rate,
            drop_path_rate,
            norm_layer,
            ape,
            patch_norm,
            loss_func,
        )

    @classmethod
    def from_config(cls, cfg: Any) -> dict[str, Any]:
        return given(cfg, _OPTIONS)


_OPTIONS = (
    "img_size", "patch_size", "in_chans", "num_classes", "embed_dim", "depths", "num_heads", "window_size", "mlp_ratio", "qkv_bias", "drop_rate",
    "attn_drop_rate", "drop_path_rate", "norm_layer", "ape", "patch_norm", "pretrained_window_sizes", "loss_func",
)  # fmt: skip
