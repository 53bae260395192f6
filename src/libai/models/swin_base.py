"""What Swin and Swin v2 share: windows, blocks, stages, patch merging and the network around the stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from libai.layers import MLP, DropPath, LayerNorm, Linear, PatchEmbedding
from libai.layers.laying import at_layer, new_parameter, new_tensor
from libai.models.utils.pictures import classified, growing, loss_of, recompute, truncated_normal
from libai.models.utils.stages import set_stages
from libai.models.utils.windows import apart, relative_positions, window_partition, window_reverse
from oneflow import nn
from oneflow.engine.core.errors import ArgumentError

Norm = Callable[..., nn.Module]


def attend_in_windows(query: Any, key: Any, value: Any, bias: Any, mask: Any, dropout: float, scale: float) -> Any:
    """Computes attention of (N * windows, heads, pixels, size).

    ``bias`` is (heads, pixels, pixels); ``mask``, of shifted windows, is (windows, pixels, pixels).
    """
    added = bias[None]
    shape = query.shape
    if mask is not None:
        # Windows become heads: the added tensor is then the same for every image, and can be sharded like the batch.
        windows, heads = mask.shape[0], shape[1]
        query, key, value = (
            part.reshape(shape[0] // windows, windows * heads, *shape[2:]) for part in (query, key, value)
        )
        added = (mask[:, None] + bias).flatten(0, 1)[None]
    output = F.scaled_dot_product_attention(query, key, value, attn_mask=added, dropout_p=dropout, scale=scale)
    return output.reshape(shape)


class WindowAttentionBase(nn.Module):
    """Attention among the pixels of a window; the weights are replicated on every rank of a stage."""

    relative_position_index: Any

    def __init__(
        self, dim: int, window_size: tuple[int, int], num_heads: int, attn_drop: float, layer_idx: int
    ) -> None:
        super().__init__()
        self.dim, self.window_size, self.num_heads, self.layer_idx = dim, window_size, num_heads, layer_idx
        self.attn_drop = attn_drop

    def _add_index(self) -> None:
        index = relative_positions(self.window_size)
        self.register_buffer(
            "relative_position_index",
            new_tensor(index.shape, lambda tensor: tensor.copy_(index), self.layer_idx, dtype=torch.int64),
        )

    def _add_projection(self, proj_drop: float) -> None:
        self.proj = Linear(self.dim, self.dim, init_method=truncated_normal, layer_idx=self.layer_idx)
        self.proj_drop = nn.Dropout(proj_drop)

    def _split_heads(self, qkv: Any) -> Any:
        """(N, pixels, 3 * dim) to query, key and value, each (N, heads, pixels, size)."""
        shape = (*qkv.shape[:2], 3, self.num_heads, self.dim // self.num_heads)
        return qkv.view(shape).permute(2, 0, 3, 1, 4).unbind(0)

    def _pair_bias(self, table: Any) -> Any:
        """A row of ``table`` for every pair of pixels, (heads, pixels, pixels)."""
        pixels = self.window_size[0] * self.window_size[1]
        return table[self.relative_position_index.flatten()].view(pixels, pixels, -1).permute(2, 0, 1)

    def _attend(self, query: Any, key: Any, value: Any, bias: Any, mask: Any, scale: float) -> Any:
        """(N, pixels, dim) of the heads together, projected."""
        dropout = self.attn_drop if self.training else 0.0
        output = attend_in_windows(query, key, value, bias, mask, dropout, scale)
        return self.proj_drop(self.proj(output.transpose(1, 2).flatten(2)))


class WindowBlock(nn.Module):
    """Attention in windows and an MLP, each with a norm, a residual connection and stochastic depth."""

    attn_mask: Any

    def _build(
        self,
        dim: int,
        resolution: tuple[int, int],
        window_size: int,
        shift_size: int,
        make_attention: Callable[[tuple[int, int]], nn.Module],
        mlp_ratio: float,
        drop: float,
        drop_path: float,
        act_layer: Callable[[], nn.Module],
        norm_layer: Norm,
        layer_idx: int,
    ) -> None:
        """Makes the parts in the order in which their initial values are drawn."""
        self._set_windows(resolution, window_size, shift_size, layer_idx)
        self.norm1 = norm_layer(dim, layer_idx=layer_idx)
        self.attn = make_attention((self.window_size, self.window_size))
        self.drop_path = DropPath(drop_path) if drop_path > 0.0 else nn.Identity()
        self.norm2 = norm_layer(dim, layer_idx=layer_idx)
        self.mlp = MLP(dim, int(dim * mlp_ratio), drop, truncated_normal, layer_idx=layer_idx)
        self.mlp.activation = act_layer()

    def _set_windows(self, resolution: tuple[int, int], window_size: int, shift_size: int, layer_idx: int) -> None:
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
        buffer = None if mask is None else new_tensor(mask.shape, lambda tensor: tensor.copy_(mask), layer_idx)
        self.register_buffer("attn_mask", buffer, persistent=False)

    def in_windows(self, x: Any) -> Any:
        """Applies the attention to a map (N, H * W, dim), window by window."""
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


def quarters(x: Any, resolution: tuple[int, int]) -> Any:
    """(N, H * W, C) to (N, H/2 * W/2, 4C): the pixels of each 2x2 square concatenated, column by column."""
    height, width = resolution
    if x.shape[1] != height * width or height % 2 or width % 2:
        raise ArgumentError(f"PatchMerging takes a map of {height}x{width} with even sides, got {x.shape[1]} tokens")
    x = x.view(x.shape[0], height // 2, 2, width // 2, 2, x.shape[-1]).permute(0, 1, 3, 4, 2, 5)
    return x.reshape(x.shape[0], height * width // 4, -1)


class PatchMergingBase(nn.Module):
    """Four neighbours become one pixel with twice the channels."""

    norm_factor: int
    """Width of the norm in multiples of ``dim``."""

    def __init__(
        self, input_resolution: tuple[int, int], dim: int, norm_layer: Norm = LayerNorm, layer_idx: int = 0
    ) -> None:
        super().__init__()
        self.input_resolution, self.dim, self.layer_idx = input_resolution, dim, layer_idx
        self.reduction = Linear(4 * dim, 2 * dim, bias=False, init_method=truncated_normal, layer_idx=layer_idx)
        self.norm = norm_layer(self.norm_factor * dim, layer_idx=layer_idx)

    def _quarters(self, x: Any) -> Any:
        return quarters(at_layer(x, self.layer_idx), self.input_resolution)


class PatchEmbed(PatchEmbedding):
    """Images as patches, (N, patches, embed_dim), with an optional norm."""

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


class Stage(nn.Module):
    """Blocks on maps of one size, every second one shifted, and the module that makes the maps smaller."""

    block: type[WindowBlock]

    def _build(
        self,
        dim: int,
        resolution: tuple[int, int],
        depth: int,
        window_size: int,
        drop_path: float | Sequence[float],
        norm_layer: Norm,
        downsample: Callable[..., nn.Module] | None,
        offset: int,
        **options: Any,
    ) -> None:
        """Makes the blocks; ``options`` are further arguments of each."""
        self.dim, self.input_resolution, self.depth = dim, resolution, depth
        rates = drop_path if isinstance(drop_path, Sequence) else [drop_path] * depth
        shared = {"window_size": window_size, "norm_layer": norm_layer, **options}
        self.blocks = nn.ModuleList(
            self.block(
                dim,
                resolution,
                shift_size=number % 2 * (window_size // 2),
                drop_path=rates[number],
                layer_idx=offset + number,
                **shared,
            )
            for number in range(depth)
        )
        self.downsample = None
        if downsample:
            self.downsample = downsample(resolution, dim, norm_layer=norm_layer, layer_idx=offset + depth - 1)

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x if self.downsample is None else self.downsample(x)


class SwinBase(nn.Module):
    """The network around the stages: patch embedding, positions, final norm, head and loss."""

    stage: type[Stage]
    merging: type[PatchMergingBase]

    def _build(
        self,
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
        stage_options: Callable[[int], dict[str, Any]],
    ) -> None:
        """Makes the parts; ``stage_options(number)`` returns the arguments of a stage that only this kind has."""
        self.num_classes, self.num_layers, self.embed_dim = num_classes, len(depths), embed_dim
        self.ape, self.patch_norm = ape, patch_norm
        self.num_features = embed_dim * 2 ** (len(depths) - 1)
        self.patch_embed = PatchEmbed(img_size, patch_size, in_chans, embed_dim, norm_layer if patch_norm else None)
        rows, columns = self.patch_embed.patches_resolution
        if ape:
            self.absolute_pos_embed = new_parameter((1, rows * columns, embed_dim), truncated_normal)
        self.pos_drop = nn.Dropout(drop_rate)
        rates, offset, stages = growing(drop_path_rate, sum(depths)), 0, []
        for number, depth in enumerate(depths):
            stages.append(
                self.stage(
                    embed_dim << number,
                    (rows >> number, columns >> number),
                    depth,
                    drop=drop_rate,
                    drop_path=rates[offset : offset + depth],
                    norm_layer=norm_layer,
                    downsample=self.merging if number < len(depths) - 1 else None,
                    layer_id_offset=offset,
                    **stage_options(number),
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
        """Returns the mean over the pixels of the last map, (N, num_features)."""
        x = self.patch_embed(x)
        x = self.pos_drop(x + self.absolute_pos_embed if self.ape else x)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x).mean(dim=1)

    def forward(self, images: Any, labels: Any = None) -> dict[str, Any]:
        return classified(self, self.head(self.forward_features(images)), labels)

    @staticmethod
    def set_pipeline_stage_id(model: Any) -> None:
        """Assigns each layer to its pipeline stage."""
        set_stages(model)

    @staticmethod
    def set_activation_checkpoint(model: Any) -> None:
        """Marks every block for recomputation in the backward pass."""
        recompute(model, WindowBlock)
