"""Embeddings: of tokens, whole or cut by the vocabulary; of positions; of patches of pictures."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from libai.layers.laying import B, Init, S, at_layer, laid, new_parameter, new_tensor, skips_init
from oneflow import nn
from oneflow.engine.core.errors import ArgumentError
from oneflow.nn import init as first


class _Table(nn.Module):
    """A row for each number. The row of ``padding_idx`` is one like the others."""

    _sbp: Any = B

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None,
        init_method: Init,
        amp_enabled: bool,
        dtype: torch.dtype,
        layer_idx: int,
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx
        self.amp_enabled, self.layer_idx = amp_enabled, layer_idx
        init = first.zeros_ if skips_init() else init_method
        self.weight = new_parameter((num_embeddings, embedding_dim), init, layer_idx, self._sbp, dtype)

    def forward(self, input_ids: Any) -> Any:
        return laid(F.embedding(at_layer(input_ids, self.layer_idx), self.weight))

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"num_embeddings={self.num_embeddings}, embedding_dim={self.embedding_dim}{padding}"


class Embedding(_Table):
    """A table that lies whole on every rank of its stage."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        init_method: Init = first.xavier_normal_,
        amp_enabled: bool = False,
        dtype: torch.dtype = torch.float32,
        layer_idx: int = 0,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx, init_method, amp_enabled, dtype, layer_idx)


class VocabEmbedding(_Table):
    """A table that tensor parallelism cuts by its rows: each rank answers for its own part of the vocabulary."""

    _sbp = S(0)

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        init_method: Init = first.xavier_normal_,
        amp_enabled: bool = False,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx, init_method, amp_enabled, torch.float32, 0)


class SinePositionalEmbedding(nn.Module):
    """Positions as waves: column 2i is sin(p / 10000^(2i / dim)), column 2i + 1 its cosine. Nothing of it is
    trained."""

    position_embedding: Any

    def __init__(self, num_embeddings: int, embedding_dim: int) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.register_buffer("position_embedding", new_tensor((num_embeddings, embedding_dim), _waves))

    def forward(self, position_ids: Any) -> Any:
        return F.embedding(at_layer(position_ids, 0), self.position_embedding)

    def extra_repr(self) -> str:
        return f"num_embeddings={self.num_embeddings}, embedding_dim={self.embedding_dim}"


def _waves(table: Any) -> None:
    count, width = table.shape
    angles = torch.arange(count)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    table[:, 0::2] = angles.sin()
    table[:, 1::2] = angles.cos()[:, : width // 2]


class PatchEmbedding(nn.Module):
    """Pictures of exactly ``img_size`` as patches: (N, patches, embed_dim), or without ``flatten`` (N, embed_dim, rows,
    columns)."""

    def __init__(
        self,
        img_size: int | tuple[int, int] = 224,
        patch_size: int | tuple[int, int] = 16,
        in_chans: int = 3,
        embed_dim: int = 768,
        norm_layer: Callable[[int], nn.Module] | None = None,
        flatten: bool = True,
        *,
        layer_idx: int = 0,
    ) -> None:
        super().__init__()
        self.img_size, self.patch_size = _pair(img_size), _pair(patch_size)
        self.grid_size = self.img_size[0] // self.patch_size[0], self.img_size[1] // self.patch_size[1]
        self.num_patches = self.grid_size[0] * self.grid_size[1]
        self.flatten, self.layer_idx = flatten, layer_idx
        self.proj = _Patches(in_chans, embed_dim, self.patch_size, layer_idx)
        self.norm = norm_layer(embed_dim) if norm_layer else nn.Identity()

    def forward(self, x: Any) -> Any:
        if tuple(x.shape[2:]) != self.img_size:
            raise ArgumentError(
                f"PatchEmbedding takes pictures of {self.img_size[0]}x{self.img_size[1]}, got "
                f"{'x'.join(map(str, x.shape[2:]))}; resize them, or build the model with img_size of theirs"
            )
        x = self.proj(at_layer(x, self.layer_idx))
        return self.norm(x.flatten(2).transpose(1, 2) if self.flatten else x)


class _Patches(nn.Module):
    """A convolution whose windows do not overlap."""

    def __init__(self, in_chans: int, embed_dim: int, patch_size: tuple[int, int], layer_idx: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(in_chans * patch_size[0] * patch_size[1])
        self.stride = patch_size
        self.weight = new_parameter(
            (embed_dim, in_chans, *patch_size), lambda w: first.uniform_(w, -bound, bound), layer_idx
        )
        self.bias = new_parameter((embed_dim,), lambda b: first.uniform_(b, -bound, bound), layer_idx)

    def forward(self, x: Any) -> Any:
        return F.conv2d(x, self.weight, self.bias, self.stride)


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[1]))
