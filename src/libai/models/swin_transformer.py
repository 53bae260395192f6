"""Swin: attention inside windows, which are shifted at every second layer, on maps that become smaller from stage to
stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from libai.config import configurable
from libai.layers import MLP, DropPath, LayerNorm, Linear, PatchEmbedding
from libai.layers.laying import at_layer, new_parameter, new_tensor
from libai.models.utils.given import given
from libai.models.utils.pictures import classified, growing, loss_of, recompute, truncated_normal
from libai.models.utils.stages import set_stages
from libai.models.utils.windows import apart, relative_positions, window_partition, window_reverse
from oneflow import nn
from oneflow.engine.core.errors import ArgumentError

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

Norm = Callable[..., nn.Module]


def attend_in_windows(query: Any, key: Any, value: Any, bias: Any, mask: Any, dropout: float, scale: float) -> Any:
    """Attention of (N * windows, heads, pixels, size) with ``bias`` (heads, pixels, pixels) and, of shifted windows,
    ``mask`` (windows, pixels, pixels)."""
    added = bias[None]
    shape = query.shape
    if mask is not None:
        # The windows of a picture count as heads: what is added then is the same for every picture, and so are its
        # parts on all ranks.
        windows, heads = mask.shape[0], shape[1]
        query, key, value = (
            part.reshape(shape[0] // windows, windows * heads, *shape[2:]) for part in (query, key, value)
        )
        added = (mask[:, None] + bias).flatten(0, 1)[None]
    found = F.scaled_dot_product_attention(query, key, value, attn_mask=added, dropout_p=dropout, scale=scale)
    return found.reshape(shape)


class WindowAttention(nn.Module):
    """Attention among the pixels of a window, with a learned bias for every distance. Its weights lie whole on every
    rank of a stage."""

    relative_position_index: Any

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
        super().__init__()
        self.dim, self.window_size, self.num_heads, self.layer_idx = dim, window_size, num_heads, layer_idx
        self.scale = qk_scale or (dim // num_heads) ** -0.5
        distances = (2 * window_size[0] - 1) * (2 * window_size[1] - 1)
        self.relative_position_bias_table = new_parameter((distances, num_heads), truncated_normal, layer_idx)
        index = relative_positions(window_size)
        self.register_buffer(
            "relative_position_index",
            new_tensor(index.shape, lambda made: made.copy_(index), layer_idx, dtype=torch.int64),
        )
        self.qkv = Linear(dim, dim * 3, bias=qkv_bias, init_method=truncated_normal, layer_idx=layer_idx)
        self.attn_drop = attn_drop
        self.proj = Linear(dim, dim, init_method=truncated_normal, layer_idx=layer_idx)
        self.proj_drop = nn.Dropout(proj_drop)

    def forward(self, x: Any, mask: Any = None) -> Any:
        """(N * windows, pixels, dim) to the same."""
        x = at_layer(x, self.layer_idx)
        count, pixels, dim = x.shape
        query, key, value = (
            self.qkv(x).view(count, pixels, 3, self.num_heads, dim // self.num_heads).permute(2, 0, 3, 1, 4).unbind(0)
        )
        bias = (
            self.relative_position_bias_table[self.relative_position_index.flatten()]
            .view(pixels, pixels, -1)
            .permute(2, 0, 1)
        )
        found = attend_in_windows(query, key, value, bias, mask, self.attn_drop if self.training else 0.0, self.scale)
        return self.proj_drop(self.proj(found.transpose(1, 2).reshape(count, pixels, dim)))


class SwinTransformerBlock(nn.Module):
    """Attention in windows and an MLP, each behind a norm and added to what came in."""

    attn_mask: Any

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
        self._lay_windows(input_resolution, window_size, shift_size, layer_idx)
        pair = (self.window_size, self.window_size)
        attention = partial(
            WindowAttention, dim, pair, num_heads, qkv_bias, qk_scale, attn_drop, drop, layer_idx=layer_idx
        )
        self._build(dim, attention, mlp_ratio, drop, drop_path, act_layer, norm_layer)

    def _build(
        self,
        dim: int,
        attention: Callable[[], nn.Module],
        mlp_ratio: float,
        drop: float,
        drop_path: float,
        act_layer: Callable[[], nn.Module],
        norm_layer: Norm,
    ) -> None:
        """The parts of both Swins' blocks, in the order in which their first values are drawn."""
        layer_idx = self.layer_idx
        self.norm1 = norm_layer(dim, layer_idx=layer_idx)
        self.attn = attention()
        self.drop_path = DropPath(drop_path) if drop_path > 0.0 else nn.Identity()
        self.norm2 = norm_layer(dim, layer_idx=layer_idx)
        self.mlp = MLP(dim, int(dim * mlp_ratio), drop, truncated_normal, layer_idx=layer_idx)
        self.mlp.activation = act_layer()

    def _lay_windows(self, resolution: tuple[int, int], window_size: int, shift_size: int, layer_idx: int) -> None:
        self.input_resolution, self.layer_idx = resolution, layer_idx
        # A map that is no larger than a window is one window, which is not shifted.
        is_one = min(resolution) <= window_size
        self.window_size, self.shift_size = (min(resolution), 0) if is_one else (window_size, shift_size)
        if any(side % self.window_size for side in resolution):
            raise ArgumentError(
                f"windows of {self.window_size} do not cover a map of {resolution[0]}x{resolution[1]}; take img_size "
                f"and window_size that do at every stage"
            )
        mask = apart(resolution, self.window_size, self.shift_size) if self.shift_size else None
        made = None if mask is None else new_tensor(mask.shape, lambda tensor: tensor.copy_(mask), layer_idx)
        self.register_buffer("attn_mask", made, persistent=False)

    def in_windows(self, x: Any) -> Any:
        """(N, H * W, dim) through the attention."""
        (height, width), dim = self.input_resolution, x.shape[-1]
        if x.shape[1] != height * width:
            raise ArgumentError(f"the layer takes maps of {height}x{width}, got {x.shape[1]} tokens")
        x = x.view(x.shape[0], height, width, dim)
        if self.shift_size:
            x = torch.roll(x, (-self.shift_size, -self.shift_size), (1, 2))
        windows = window_partition(x, self.window_size).view(-1, self.window_size**2, dim)
        windows = self.attn(windows, self.attn_mask).view(-1, self.window_size, self.window_size, dim)
        x = window_reverse(windows, self.window_size, height, width)
        if self.shift_size:
            x = torch.roll(x, (self.shift_size, self.shift_size), (1, 2))
        return x.flatten(1, 2)

    def forward(self, x: Any) -> Any:
        x = at_layer(x, self.layer_idx)
        x = x + self.drop_path(self.in_windows(self.norm1(x)))
        return x + self.drop_path(self.mlp(self.norm2(x)))


def quarters(x: Any, resolution: tuple[int, int]) -> Any:
    """(N, H * W, C) to (N, H/2 * W/2, 4C): the pixels of each square of two by two side by side, column by column."""
    height, width = resolution
    if x.shape[1] != height * width or height % 2 or width % 2:
        raise ArgumentError(f"PatchMerging takes a map of {height}x{width} with even sides, got {x.shape[1]} tokens")
    x = x.view(x.shape[0], height // 2, 2, width // 2, 2, x.shape[-1]).permute(0, 1, 3, 4, 2, 5)
    return x.reshape(x.shape[0], height * width // 4, -1)


class PatchMerging(nn.Module):
    """Four neighbours become one pixel of twice the channels."""

    _normed = 4
    """How many times ``dim`` the norm is wide."""

    def __init__(
        self, input_resolution: tuple[int, int], dim: int, norm_layer: Norm = LayerNorm, layer_idx: int = 0
    ) -> None:
        super().__init__()
        self.input_resolution, self.dim, self.layer_idx = input_resolution, dim, layer_idx
        self.reduction = Linear(4 * dim, 2 * dim, bias=False, init_method=truncated_normal, layer_idx=layer_idx)
        self.norm = norm_layer(self._normed * dim, layer_idx=layer_idx)

    def forward(self, x: Any) -> Any:
        return self.reduction(self.norm(quarters(at_layer(x, self.layer_idx), self.input_resolution)))


class PatchEmbed(PatchEmbedding):
    """Pictures as patches, (N, patches, embed_dim), with a norm where one is given."""

    def __init__(
        self,
        img_size: int | tuple[int, int] = 224,
        patch_size: int | tuple[int, int] = 4,
        in_chans: int = 3,
        embed_dim: int = 96,
        norm_layer: Norm | None = None,
        layer_idx: int = 0,
    ) -> None:
        super().__init__(img_size, patch_size, in_chans, embed_dim, norm_layer, layer_idx=layer_idx)
        self.patches_resolution = self.grid_size


class BasicLayer(nn.Module):
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
        qk_scale: float | None = None,
        drop: float = 0.0,
        attn_drop: float = 0.0,
        drop_path: float | Sequence[float] = 0.0,
        norm_layer: Norm = LayerNorm,
        downsample: Callable[..., nn.Module] | None = None,
        layer_id_offset: int = 0,
    ) -> None:
        super().__init__()

        def block(shift: int, dropped: float, layer_idx: int) -> SwinTransformerBlock:
            return SwinTransformerBlock(
                dim,
                input_resolution,
                num_heads,
                window_size,
                shift,
                mlp_ratio,
                qkv_bias,
                qk_scale,
                drop,
                attn_drop,
                dropped,
                norm_layer=norm_layer,
                layer_idx=layer_idx,
            )

        self._build(
            block, dim, input_resolution, depth, window_size, drop_path, norm_layer, downsample, layer_id_offset
        )

    def _build(
        self,
        make_block: Callable[[int, float, int], nn.Module],
        dim: int,
        input_resolution: tuple[int, int],
        depth: int,
        window_size: int,
        drop_path: float | Sequence[float],
        norm_layer: Norm,
        downsample: Callable[..., nn.Module] | None,
        offset: int,
    ) -> None:
        """What a stage of both Swins is; ``make_block(shift, drop_path, layer_idx)`` makes one of its blocks."""
        self.dim, self.input_resolution, self.depth = dim, input_resolution, depth
        drops = drop_path if isinstance(drop_path, Sequence) else [drop_path] * depth
        self.blocks = nn.ModuleList(
            [make_block(number % 2 * (window_size // 2), drops[number], offset + number) for number in range(depth)]
        )
        self.downsample = (
            downsample(input_resolution, dim, norm_layer=norm_layer, layer_idx=offset + depth - 1)
            if downsample
            else None
        )

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x if self.downsample is None else self.downsample(x)


class SwinBase(nn.Module):
    """What both Swins are around their stages. ``make_stage(number, dim, resolution, drops, is_last, offset)`` makes
    one of them."""

    def _build(
        self,
        make_stage: Callable[..., nn.Module],
        img_size: int | tuple[int, int],
        patch_size: int | tuple[int, int],
        in_chans: int,
        num_classes: int,
        embed_dim: int,
        depths: Sequence[int],
        drop_rate: float,
        drop_path_rate: float,
        norm_layer: Norm,
        ape: bool,
        patch_norm: bool,
        loss_func: Any,
    ) -> None:
        self.num_classes, self.num_layers, self.embed_dim, self.ape, self.patch_norm = (
            num_classes,
            len(depths),
            embed_dim,
            ape,
            patch_norm,
        )
        self.num_features = embed_dim * 2 ** (len(depths) - 1)
        self.patch_embed = PatchEmbed(img_size, patch_size, in_chans, embed_dim, norm_layer if patch_norm else None)
        rows, columns = self.patch_embed.patches_resolution
        if ape:
            self.absolute_pos_embed = new_parameter((1, rows * columns, embed_dim), truncated_normal)
        self.pos_drop = nn.Dropout(drop_rate)
        drops, offset, stages = growing(drop_path_rate, sum(depths)), 0, []
        for number, depth in enumerate(depths):
            resolution = (rows >> number, columns >> number)
            stages.append(
                make_stage(
                    number,
                    embed_dim << number,
                    resolution,
                    drops[offset : offset + depth],
                    number == len(depths) - 1,
                    offset,
                )
            )
            offset += depth
        self.layers = nn.ModuleList(stages)
        self.norm = norm_layer(self.num_features, layer_idx=-1)
        self.head = (
            Linear(self.num_features, num_classes, init_method=truncated_normal, layer_idx=-1)
            if num_classes > 0
            else nn.Identity()
        )
        self.loss_func = loss_of(loss_func)

    def forward_features(self, x: Any) -> Any:
        """The mean over the pixels of the last map, (N, num_features)."""
        x = self.patch_embed(x)
        x = self.pos_drop(x + self.absolute_pos_embed if self.ape else x)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x).mean(dim=1)

    def forward(self, images: Any, labels: Any = None) -> dict[str, Any]:
        return classified(self, self.head(self.forward_features(images)), labels)

    @staticmethod
    def set_pipeline_stage_id(model: Any) -> None:
        """Says which stage each layer belongs to."""
        set_stages(model)

    @staticmethod
    def set_activation_checkpoint(model: Any) -> None:
        """Marks every block: its activations are computed again in the backward pass."""
        recompute(model, SwinTransformerBlock)


class SwinTransformer(SwinBase):
    """Called with pictures (N, channels, ``img_size``, ``img_size``) and in training with labels; ``depths`` and
    ``num_heads`` have a number for each stage. Only MLPs are cut by tensor parallelism. ``loss_func`` is cross entropy
    unless said; arguments of other names are not looked at."""

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

        def stage(
            number: int, dim: int, resolution: tuple[int, int], drops: list[float], is_last: bool, offset: int
        ) -> BasicLayer:
            merge = None if is_last else PatchMerging
            heads = num_heads[number]
            rates = (drop_rate, attn_drop_rate, drops)
            return BasicLayer(
                dim,
                resolution,
                depths[number],
                heads,
                window_size,
                mlp_ratio,
                qkv_bias,
                qk_scale,
                *rates,
                norm_layer,
                merge,
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
    "img_size", "patch_size", "in_chans", "num_classes", "embed_dim", "depths", "num_heads", "window_size", "mlp_ratio", "qkv_bias", "qk_scale", "drop_rate",
    "attn_drop_rate", "drop_path_rate", "norm_layer", "ape", "patch_norm", "loss_func",
)  # fmt: skip
