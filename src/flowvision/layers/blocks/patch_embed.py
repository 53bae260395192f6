"""Pictures cut into patches, each a vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import oneflow.nn as nn
from oneflow import Tensor
from oneflow.engine.core.errors import ArgumentError

T = TypeVar("T")


def to_2tuple(x: T | tuple[T, T]) -> tuple[T, T]:
    """A pair, of one value twice if it is not one already."""
    return x if isinstance(x, tuple) else (x, x)


class PatchEmbed(nn.Module):
    """(batch, channels, height, width) to (batch, patches, embed_dim), or to a map of them with ``flatten`` False."""

    def __init__(
        self,
        img_size: int | tuple[int, int] = 224,
        patch_size: int | tuple[int, int] = 16,
        in_chans: int = 3,
        embed_dim: int = 768,
        norm_layer: Callable[[int], nn.Module] | None = None,
        flatten: bool = True,
    ) -> None:
        super().__init__()
        self.img_size, self.patch_size, self.flatten = to_2tuple(img_size), to_2tuple(patch_size), flatten
        self.grid_size = self.img_size[0] // self.patch_size[0], self.img_size[1] // self.patch_size[1]
        self.num_patches = self.grid_size[0] * self.grid_size[1]
        self.proj = nn.Conv2d(in_chans, embed_dim, self.patch_size, self.patch_size)
        self.norm = norm_layer(embed_dim) if norm_layer else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        if tuple(x.shape[2:]) != self.img_size:
            raise ArgumentError(
                f"the network takes pictures of {self.img_size[0]} x {self.img_size[1]}, got {x.shape[2]} x "
                f"{x.shape[3]}; img_size= makes it for others"
            )
        x = self.proj(x)
        return self.norm(x.flatten(2).transpose(1, 2) if self.flatten else x)
