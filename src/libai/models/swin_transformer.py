"""Swin: attention inside windows, which are shifted in every second block, on maps that shrink from stage to stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from libai.config import configurable
from libai.layers import LayerNorm, Linear
from libai.layers.laying import at_layer, new_parameter
from libai.models.swin_base import Norm, PatchEmbed, PatchMergingBase, Stage, SwinBase, WindowAttentionBase, WindowBlock
from libai.models.utils.given import given
from libai.models.utils.pictures import truncated_normal
from libai.models.utils.windows import window_partition, window_reverse
from oneflow import nn

__all__ = [
    "BasicLayer",
    "PatchEmbed",
    "PatchMerging",
    "SwinTransformer",
    "SwinTransformerBlock",
    "WindowAttention",
    "window_partition",
    "window_reverse",
]


class WindowAttention(WindowAttentionBase):
    """Attention among the pixels of a window, with a learned bias for every distance."""

    def __init__(
        self,
        dim: int,
        window_size: tuple[int, int],
        num_heads: int,
        qkv_bias: bool = True,
        qk_scale: float | None = None,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        fused_bias_add_dropout: bool = False,
        layer_idx: int = 0,
    ) -> None:
        super().__init__(dim, window_size, num_heads, attn_drop, layer_idx)
        self.scale = qk_scale or (dim // num_heads) ** -0.5
        distances = (2 * window_size[0] - 1) * (2 * window_size[1] - 1)
        self.relative_position_bias_table = new_parameter((distances, num_heads), truncated_normal, layer_idx)
        self._add_index()
        self.qkv = Linear(dim, dim * 3, bias=qkv_bias, init_method=truncated_normal, layer_idx=layer_idx)
        self._add_projection(proj_drop)

    def forward(self, x: Any, mask: Any = None) -> Any:
        """Maps (N * windows, pixels, dim) to the same shape."""
        query, key, value = self._split_heads(self.qkv(at_layer(x, self.layer_idx)))
        bias = self._pair_bias(self.relative_position_bias_table)
        return self._attend(query, key, value, bias, mask, self.scale)


class SwinTransformerBlock(WindowBlock):
    """Attention in windows and an MLP; a norm precedes each."""

    def __init__(
        self,
        dim: int,
        input_resolution: tuple[int, int],
        num_heads: int,
        window_size: int = 7,
        shift_size: int = 0,
        mlp_ratio: float = 4.0,
        qkv_bias: bool = True,
        qk_scale: float | None = None,
        drop: float = 0.0,
        attn_drop: float = 0.0,
        drop_path: float = 0.0,
        act_layer: Callable[[], nn.Module] = nn.GELU,
        norm_layer: Norm = LayerNorm,
        layer_idx: int = 0,
    ) -> None:
        super().__init__()

        def attention(window: tuple[int, int]) -> WindowAttention:
            return WindowAttention(dim, window, num_heads, qkv_bias, qk_scale, attn_drop, drop, layer_idx=layer_idx)

        sizes = (dim, input_resolution, window_size, shift_size)
        self._build(*sizes, attention, mlp_ratio, drop, drop_path, act_layer, norm_layer, layer_idx)

    def forward(self, x: Any) -> Any:
        x = at_layer(x, self.layer_idx)
        x = x + self.drop_path(self.in_windows(self.norm1(x)))
        return x + self.drop_path(self.mlp(self.norm2(x)))


class PatchMerging(PatchMergingBase):
    """Four neighbours become one pixel with twice the channels; the norm precedes the projection."""

    norm_factor = 4

    def forward(self, x: Any) -> Any:
        return self.reduction(self.norm(self._quarters(x)))


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
        qk_scale: float | None = None,
        drop: float = 0.0,
        attn_drop: float = 0.0,
        drop_path: float | Sequence[float] = 0.0,
        norm_layer: Norm = LayerNorm,
        downsample: Callable[..., nn.Module] | None = None,
        layer_id_offset: int = 0,
    ) -> None:
        super().__init__()
        sizes = (dim, input_resolution, depth, window_size)
        self._build(
            *sizes, drop_path, norm_layer, downsample, layer_id_offset,
            num_heads=num_heads, mlp_ratio=mlp_ratio, qkv_bias=qkv_bias, qk_scale=qk_scale, drop=drop, attn_drop=attn_drop,
        )  # fmt: skip


class SwinTransformer(SwinBase):
    """Swin Transformer for image classification.

    Called with images (N, channels, ``img_size``, ``img_size``), and in training with labels. ``depths`` and
    ``num_heads`` have a number for each stage. Tensor parallelism shards only the MLPs. ``loss_func`` is cross entropy
    by default; unknown arguments are ignored.
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
        qk_scale: float | None = None,
        drop_rate: float = 0.0,
        attn_drop_rate: float = 0.0,
        drop_path_rate: float = 0.1,
        norm_layer: Norm = LayerNorm,
        ape: bool = False,
        patch_norm: bool = True,
        loss_func: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()

        def options(number: int) -> dict[str, Any]:
            return {
                "num_heads": num_heads[number],
                "window_size": window_size,
                "mlp_ratio": mlp_ratio,
                "qkv_bias": qkv_bias,
                "qk_scale": qk_scale,
                "attn_drop": attn_drop_rate,
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
    "qkv_bias", "qk_scale", "drop_rate", "attn_drop_rate", "drop_path_rate", "norm_layer", "ape", "patch_norm",
    "loss_func",
)  # fmt: skip
