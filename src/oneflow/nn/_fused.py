"""``flow.nn``: functions that had one kernel of their own, as the formulas they stand for."""

from __future__ import annotations

from collections.abc import Sequence

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.number import number, whole
from oneflow.engine.ir.blob import Blob, emit
from oneflow.engine.ops import array as array_rows
from oneflow.engine.ops import index as index_rows
from oneflow.engine.ops import matmul as matmul_rows
from oneflow.math import gelu
from oneflow.math._dropout import dropout
from oneflow.nn import _arguments as arguments
from oneflow.nn._conv import bias_add


def fused_bias_add_gelu(value: Blob, bias: Blob, data_format: str | None = None, name: str | None = None) -> Blob:
    """gelu(value + bias), the bias along the channels as in ``bias_add``."""
    return gelu(bias_add(value, bias, data_format), name=name)


def fused_bias_add_dropout(
    value: Blob,
    bias: Blob,
    data_format: str | None = None,
    rate: float = 0.0,
    noise_shape: Sequence[int] | None = None,
    seed: int | None = None,
    name: str | None = None,
) -> Blob:
    """dropout(value + bias), the bias along the channels as in ``bias_add``."""
    return dropout(bias_add(value, bias, data_format), rate, noise_shape, seed, name)


def fused_self_attention_query_mul_key_and_value(
    x: Blob, head_size: int, alpha: float = 1.0, name: str | None = None
) -> tuple[Blob, Blob]:
    """From x (length, batch, heads · 3 · head_size), in which each head's query, key and value lie side by side,
    ``alpha`` · query · keyᵀ of shape (batch, heads, length, length) and the values (batch, heads, length,
    head_size)."""
    length, batch, width = arguments.blob("x", x, 3).shape
    size, factor = whole("head_size", head_size, above=0), number("alpha", alpha)
    if width % (3 * size):
        raise ArgumentError(
            f"the last axis of x holds query, key and value of every head, a multiple of 3 x {size}; got {x!r}"
        )
    heads = emit(array_rows.reshape, x, shape=(length, batch, width // (3 * size), 3 * size))
    query, key, value = (_head(heads, i * size, size) for i in range(3))
    scores = emit(matmul_rows.matmul, query, key, transpose_a=False, transpose_b=True, alpha=factor, name=name)
    return scores, value


def _head(heads: Blob, start: int, size: int) -> Blob:
    """One third of every head as (batch, heads, length, head_size)."""
    part = emit(index_rows.slice_v2, heads, bounds=((None, None, None),) * 3 + ((start, start + size, None),))
    return emit(array_rows.transpose, part, perm=(1, 2, 0, 3))
