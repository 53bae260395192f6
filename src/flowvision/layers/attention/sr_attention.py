"""Attention whose keys and values come from a smaller map, as in pyramid vision transformers."""

from __future__ import annotations

import torch

import oneflow.nn as nn
from oneflow import Tensor
from oneflow.engine.core.errors import ArgumentError


class SR_Attention(nn.Module):
    """``sr_ratio`` above 1 narrows the map of keys and values by that much in both directions."""

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        qkv_bias: bool = False,
        qk_scale: float | None = None,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        sr_ratio: int = 1,
    ) -> None:
        super().__init__()
        if dim % num_heads:
            raise ArgumentError(f"dim {dim} should be a multiple of num_heads {num_heads}")
        self.num_heads, self.scale, self.sr_ratio = num_heads, qk_scale, sr_ratio
        self.q = nn.Linear(dim, dim, bias=qkv_bias)
        self.kv = nn.Linear(dim, dim * 2, bias=qkv_bias)
        self.attn_drop = nn.Dropout(attn_drop)
        self.proj = nn.Linear(dim, dim)
        self.proj_drop = nn.Dropout(proj_drop)
        if sr_ratio > 1:
            self.sr = nn.Conv2d(dim, dim, sr_ratio, sr_ratio)
            self.norm = nn.LayerNorm(dim)

    def forward(self, x: Tensor, H: int, W: int) -> Tensor:
        """(batch, H * W, dim) to the same."""
        batch, count, dim = x.shape
        seen = x
        if self.sr_ratio > 1:
            seen = self.norm(self.sr(x.transpose(1, 2).reshape(batch, dim, H, W)).flatten(2).transpose(1, 2))
        q = self.q(x).view(batch, count, self.num_heads, -1).transpose(1, 2)
        k, v = self.kv(seen).view(batch, seen.shape[1], 2, self.num_heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        drop = self.attn_drop.p if self.training else 0.0
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=drop, scale=self.scale)
        return self.proj_drop(self.proj(y.transpose(1, 2).reshape(batch, count, dim)))
