"""Swin v2: cosine attention, biases that a small network computes from distances, and norms behind the branches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from libai.config import configurable
from libai.layers import LayerNorm, Linear
from libai.layers.laying import at_layer, new_parameter, new_tensor
from libai.models.swin_base import Norm, PatchEmbed, PatchMergingBase, Stage, SwinBase, WindowAttentionBase, WindowBlock
from libai.models.utils.given import given
from libai.models.utils.pictures import truncated_normal
from libai.models.utils.windows import window_partition, window_reverse
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

_MAX_LOG_SCALE = math.log(100.0)


def log_distances(window: tuple[int, int], pretrained: tuple[int, int]) -> torch.Tensor:
    """Returns every distance in a window on a logarithmic scale, (1, 2h - 1, 2w - 1, 2).

    The largest distance is 1 in the ``pretrained`` window, or in ``window`` if that is 0.
    """
    sides = [pretrained[at] if pretrained[at] > 0 else window[at] for at in (0, 1)]
    ys, xs = torch.meshgrid(*(torch.arange(-(side - 1), side, dtype=torch.float32) for side in window), indexing="ij")
    table = 8 * torch.stack([ys / max(sides[0] - 1, 1), xs / max(sides[1] - 1, 1)], -1)[None]
    return table.sign() * torch.log2(table.abs() + 1.0) / math.log2(8)


class WindowAttention(WindowAttentionBase):
    """Attention by the cosine of queries and keys, times a learned scale; keys have no bias."""

    relative_coords_table: Any

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
        super().__init__(dim, window_size, num_heads, attn_drop, layer_idx)
        self.pretrained_window_size = (pretrained_window_size[0], pretrained_window_size[1])
        self.logit_scale = new_parameter(
            (num_heads, 1, 1), lambda scale: nn.init.constant_(scale, math.log(10.0)), layer_idx
        )
        self.cpb_mlp = nn.Sequential(
            Linear(2, 512, init_method=truncated_normal, layer_idx=layer_idx),
            nn.ReLU(),
            Linear(512, num_heads, bias=False, init_method=truncated_normal, layer_idx=layer_idx),
        )
        table = log_distances(window_size, self.pretrained_window_size)
        self.register_buffer(
            "relative_coords_table", new_tensor(table.shape, lambda tensor: tensor.copy_(table), layer_idx)
        )
        self._add_index()
        self.qkv = Linear(dim, dim * 3, bias=False, init_method=truncated_normal, layer_idx=layer_idx)
        self.q_bias = new_parameter((dim,), nn.init.zeros_, layer_idx) if qkv_bias else None
        self.v_bias = new_parameter((dim,), nn.init.zeros_, layer_idx) if qkv_bias else None
        self._add_projection(proj_drop)

    def forward(self, x: Any, mask: Any = None) -> Any:
        """Maps (N * windows, pixels, dim) to the same shape."""
        qkv = self.qkv(at_layer(x, self.layer_idx))
        if self.q_bias is not None and self.v_bias is not None:
            qkv = qkv + torch.cat([self.q_bias, torch.zeros_like(self.q_bias), self.v_bias])
        query, key, value = self._split_heads(qkv)
        query = F.normalize(query, dim=-1) * self.logit_scale.clamp(max=_MAX_LOG_SCALE).exp()
        return self._attend(query, F.normalize(key, dim=-1), value, self._bias(), mask, 1.0)

    def _bias(self) -> Any:
        # Called as modules, the layers would shard the table's first dim like a batch.
        first: Any = self.cpb_mlp[0]
        last: Any = self.cpb_mlp[2]
        hidden = F.relu(F.linear(self.relative_coords_table.flatten(0, 2), first.weight, first.bias))
        return 16 * torch.sigmoid(self._pair_bias(F.linear(hidden, last.weight)))


class SwinTransformerBlock(WindowBlock):
    """Attention in windows and an MLP; a norm follows each, whose output is 0 at first."""

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
        super().__init__()
        pretrained = (pretrained_window_size, pretrained_window_size)

        def attention(window: tuple[int, int]) -> WindowAttention:
            return WindowAttention(dim, window, num_heads, qkv_bias, attn_drop, drop, pretrained, layer_idx=layer_idx)

        sizes = (dim, input_resolution, window_size, shift_size)
        self._build(*sizes, attention, mlp_ratio, drop, drop_path, act_layer, norm_layer, layer_idx)
        for norm in (self.norm1, self.norm2):
            for parameter in norm.parameters():
                parameter.data.zero_()

    def forward(self, x: Any) -> Any:
        x = at_layer(x, self.layer_idx)
        x = x + self.drop_path(self.norm1(self.in_windows(x)))
        return x + self.drop_path(self.norm2(self.mlp(x)))


class PatchMerging(PatchMergingBase):
    """Four neighbours become one pixel with twice the channels; the norm follows the projection."""

    norm_factor = 2

    def forward(self, x: Any) -> Any:
        return self.norm(self.reduction(self._quarters(x)))


class BasicLayer(Stage):
    """One stage: blocks on maps of one size, every second one shifted, and the module that makes the maps smaller."""

    block = SwinTransformerBlock

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
        super().__init__()
        sizes = (dim, input_resolution, depth, window_size)
        self._build(
            *sizes, drop_path, norm_layer, downsample, layer_id_offset,
            num_heads=num_heads, mlp_ratio=mlp_ratio, qkv_bias=qkv_bias, drop=drop, attn_drop=attn_drop,
            pretrained_window_size=pretrained_window_size,
        )  # fmt: skip


class SwinTransformerV2(SwinBase):
    """Swin Transformer V2 for image classification.

    Called with images (N, channels, ``img_size``, ``img_size``), and in training with labels. ``depths``, ``num_heads``
    and ``pretrained_window_sizes`` have a number for each stage. Tensor parallelism shards only the MLPs. ``loss_func``
    is cross entropy by default.
    """

    stage, merging = BasicLayer, PatchMerging

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

        def options(number: int) -> dict[str, Any]:
            return {
                "num_heads": num_heads[number],
                "window_size": window_size,
                "mlp_ratio": mlp_ratio,
                "qkv_bias": qkv_bias,
                "attn_drop": attn_drop_rate,
                "pretrained_window_size": pretrained_window_sizes[number],
            }

        self._build(
            img_size, patch_size, in_chans, num_classes, embed_dim, depths, drop_rate, drop_path_rate, norm_layer, ape,
            patch_norm, loss_func, options,
        )  # fmt: skip

    @classmethod
    def from_config(cls, cfg: Any) -> dict[str, Any]:
        return given(cfg, _OPTIONS)


_OPTIONS = (
    "img_size", "patch_size", "in_chans", "num_classes", "embed_dim", "depths", "num_heads", "window_size", "mlp_ratio",
    "qkv_bias", "drop_rate", "attn_drop_rate", "drop_path_rate", "norm_layer", "ape", "patch_norm",
    "pretrained_window_sizes", "loss_func",
)  # fmt: skip
