"""Scores of tokens by the table that embeds them."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F

from libai.layers.laying import S, at_layer, laid, new_parameter
from oneflow import nn


class LMLogits(nn.Module):
    """x Eᵀ, and a bias with ``bias``, on the last stage, for a table E that may lie on the first. Along the tensor axis
    the vocabulary is cut."""

    def __init__(self, vocab_size: int, bias: bool = False) -> None:
        super().__init__()
        self.vocab_size, self.layer_idx = vocab_size, -1
        self.bias: Any = new_parameter((vocab_size,), nn.init.zeros_, -1, S(0)) if bias else None

    def forward(self, input: Any, word_embeddings: Any) -> Any:
        return F.linear(laid(at_layer(input, -1)), at_layer(word_embeddings, -1), self.bias)

    def extra_repr(self) -> str:
        return f"vocab_size={self.vocab_size}, bias={self.bias is not None}"
