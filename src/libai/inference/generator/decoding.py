"""Decoders with a cache of keys and values: one token of every row at a time, on plain tensors.

A decoder takes the weights of a model as this rank holds them and computes what the model's ``forward`` computes,
without dropout: the prompt at once, then token by token. Keys and values of all layers lie in one tensor that is made
once. A step is a few calls of torch per layer: no module is called, no graph is built, no mask is made. Along the
tensor axis ranks add up their parts; all of them get all scores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from libai.inference.generator.products import Product, own_part
from libai.utils import distributed as dist
from oneflow.engine.collective import all_reduce, gather_parts
from oneflow.engine.core.errors import ArgumentError

_NOTHING = -1e30  # what is added to the score of a position that is not looked at

Norm = Callable[[Tensor], Tensor]
Embed = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Look:
    """What attention is told at one call: the places of the cache that are written and read, and what is added to
    scores."""

    batch: int
    length: int
    slots: Sequence[Tensor]
    keys: Sequence[Tensor]
    values: Sequence[Tensor]
    mask: Tensor | None
    is_causal: bool
    is_step: bool
    rotation: tuple[Tensor, Tensor] | None = None


class Table:
    """A table of embeddings, of which this rank has some rows."""

    def __init__(self, weight: Any, ranks: tuple[int, ...], place: int) -> None:
        self.weight = own_part(weight)
        self.ranks = ranks
        self.total = weight.shape[0]
        self.sizes = tuple(self.total // len(ranks) + (i < self.total % len(ranks)) for i in range(len(ranks)))
        self.start = sum(self.sizes[:place])

    def __call__(self, ids: Tensor) -> Tensor:
        if len(self.ranks) == 1:
            return F.embedding(ids, self.weight)
        own = ids - self.start
        is_own = (own >= 0) & (own < len(self.weight))
        found = F.embedding(torch.where(is_own, own, 0), self.weight)
        return all_reduce(found * is_own.unsqueeze(-1), "sum", self.ranks)


class Attention:
    """Attention of the new positions to those of the cache, by the layout of ``MultiheadAttention``: query, key and
    value of each head in a row."""

    def __init__(self, module: Any, rows: int, ranks: tuple[int, ...]) -> None:
        self.size = module.head_size
        self.project = Product(module.query_key_value.weight, module.query_key_value.bias, rows)
        self.out = Product(module.dense.weight, module.dense.bias, rows, sums=ranks)
        self.heads = self.project.outputs // (3 * self.size)

    def __call__(self, x: Tensor, look: Look, layer: int) -> Tensor:
        parts = (
            self.project(x, look.is_step).view(look.batch, look.length, self.heads, 3, self.size).permute(0, 2, 3, 1, 4)
        )
        look.slots[layer].copy_(parts[:, :, 1:])
        found = F.scaled_dot_product_attention(
            parts.select(2, 0), look.keys[layer], look.values[layer], look.mask, is_causal=look.is_causal
        )
        return self.out(found.transpose(1, 2).reshape(x.shape[0], -1), look.is_step)


class CrossAttention:
    """Attention to the states of an encoder, whose keys and values are made once."""

    def __init__(self, module: Any, rows: int, ranks: tuple[int, ...], states: Tensor) -> None:
        self.size = module.head_size
        self.query = Product(module.query.weight, module.query.bias, rows)
        self.out = Product(module.dense.weight, module.dense.bias, rows, sums=ranks)
        self.heads = self.query.outputs // self.size
        weight, bias = own_part(module.key_value.weight), own_part(module.key_value.bias)
        parts = F.linear(states, weight, bias).view(*states.shape[:2], self.heads, 2, self.size).permute(3, 0, 2, 1, 4)
        self.keys, self.values = parts[0].contiguous(), parts[1].contiguous()

    def __call__(self, x: Tensor, look: Look, mask: Tensor | None) -> Tensor:
        query = self.query(x, look.is_step).view(look.batch, look.length, self.heads, self.size).transpose(1, 2)
        found = F.scaled_dot_product_attention(query, self.keys, self.values, mask)
        return self.out(found.transpose(1, 2).reshape(x.shape[0], -1), look.is_step)


class Block:
    """One ``TransformerLayer``."""

    def __init__(
        self, layer: Any, number: int, rows: int, ranks: tuple[int, ...], states: Tensor | None = None
    ) -> None:
        self.number, self.after_norm = number, layer.apply_residual_post_layernorm
        self.norm, self.mlp_norm = norm_of(layer.input_layernorm), norm_of(layer.post_attention_layernorm)
        self.attention = Attention(layer.self_attention, rows, ranks)
        self.cross: CrossAttention | None = None
        if layer.is_decoder:
            if states is None:
                raise ArgumentError("a decoder layer attends to the states of an encoder")
            self.cross, self.cross_norm = CrossAttention(layer.cross_attention, rows, ranks, states), self.mlp_norm
            self.mlp_norm = norm_of(layer.post_cross_attention_layernorm)
        self.up = Product(layer.mlp.dense_h_to_4h.weight, layer.mlp.dense_h_to_4h.bias, rows)
        self.down = Product(layer.mlp.dense_4h_to_h.weight, layer.mlp.dense_4h_to_h.bias, rows, sums=ranks)
        self.activation: Callable[[Tensor], Tensor] = getattr(layer.mlp, "activation", F.gelu)

    def __call__(self, x: Tensor, look: Look, cross_mask: Tensor | None = None) -> Tensor:
        h = self.norm(x)
        x = self.attention(h, look, self.number).add_(h if self.after_norm else x)
        if self.cross is not None:
            h = self.cross_norm(x)
            x = self.cross(h, look, cross_mask).add_(h if self.after_norm else x)
        h = self.mlp_norm(x)
        return self.down(self.activation(self.up(h, look.is_step)), look.is_step).add_(h if self.after_norm else x)


class RotaryBlock:
    """One layer of Llama: norms without means, positions by turning, groups of queries that share keys, a gated MLP."""

    def __init__(self, layer: Any, number: int, rows: int, ranks: tuple[int, ...]) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.number, self.size = number, attention.head_dim
        self.norm, self.mlp_norm = norm_of(layer.input_layernorm), norm_of(layer.post_attention_layernorm)
        self.query, self.key, self.value, self.gate, self.up = (
            Product(one.weight, one.bias, rows)
            for one in (attention.q_proj, attention.k_proj, attention.v_proj, mlp.gate_proj, mlp.up_proj)
        )
        self.out, self.down = (
            Product(one.weight, one.bias, rows, sums=ranks) for one in (attention.o_proj, mlp.down_proj)
        )
        self.heads = self.key.outputs // self.size
        self.group = self.query.outputs // self.key.outputs

    def __call__(self, x: Tensor, look: Look, cross_mask: Tensor | None = None) -> Tensor:
        h = self.norm(x)
        query, key, value = (
            product(h, look.is_step).view(look.batch, look.length, -1, self.size).transpose(1, 2)
            for product in (self.query, self.key, self.value)
        )
        look.slots[self.number].select(2, 0).copy_(turned(key, look.rotation))
        look.slots[self.number].select(2, 1).copy_(value)
        found = self._attend(turned(query, look.rotation), look)
        x = self.out(found.reshape(x.shape[0], -1), look.is_step).add_(x)
        h = self.mlp_norm(x)
        return self.down(F.silu(self.gate(h, look.is_step)).mul_(self.up(h, look.is_step)), look.is_step).add_(x)

    def _attend(self, query: Tensor, look: Look) -> Tensor:
        """(batch, length, heads, size)"""
        keys, values = look.keys[self.number], look.values[self.number]
        if look.is_step:  # the queries of a group look at the same keys: as if they were queries of one head
            shared = query.reshape(look.batch, self.heads, self.group, self.size)
            return F.scaled_dot_product_attention(shared, keys, values, look.mask)
        keys, values = (one.repeat_interleave(self.group, 1) for one in (keys, values))
        return F.scaled_dot_product_attention(query, keys, values, look.mask, is_causal=look.is_causal).transpose(1, 2)


def turned(states: Tensor, rotation: tuple[Tensor, Tensor] | None) -> Tensor:
    """Pairs, which are halves of a head apart, turned by the angles of their positions."""
    assert rotation is not None  # models of such layers have one
    cosines, sines = rotation
    return torch.addcmul(states * cosines, states.roll(states.shape[-1] // 2, -1), sines)


class CachedDecoder:
    """Scores of the next token of every row: :meth:`start` for the prompts, then :meth:`step` for each token.
    :meth:`reorder` has rows go on from others."""

    def __init__(
        self,
        blocks: Sequence[Any],
        embed: Embed,
        norm: Norm,
        head: Product,
        table: Table,
        shape: tuple[int, int, int, int],
    ) -> None:
        rows, heads, capacity, size = shape
        self.blocks, self.embed, self.norm, self.head, self.table = blocks, embed, norm, head, table
        weight = table.weight
        self.cache = torch.zeros(len(blocks), rows, heads, 2, capacity, size, dtype=weight.dtype, device=weight.device)
        self.length = 0
        self.hidden: Tensor | None = (
            None  # [rows, capacity] of what is added to scores; None while every position is looked at
        )
        self.missing: Tensor | None = None  # of each row how many positions of its prompt are empty
        self.cross_mask: Tensor | None = None

    def start(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The prompts, ``[rows, length]``, filled up on the left where ``attention_mask`` is 0; ``[rows, vocabulary]``
        of scores."""
        rows, length = ids.shape
        mask = None
        positions = torch.arange(length, device=ids.device).expand(rows, length)
        if attention_mask is not None and not bool(attention_mask.all()):
            positions = (attention_mask.long().cumsum(-1) - 1).clamp_(min=0)
            self.missing = (length - positions[:, -1] - 1).unsqueeze(1)
            self.hidden = self.cache.new_zeros(rows, self.cache.shape[4])
            self.hidden[:, :length].masked_fill_(attention_mask == 0, _NOTHING)
            later = torch.ones(length, length, dtype=torch.bool, device=ids.device).triu(1)
            mask = (self.hidden[:, None, None, :length].expand(rows, 1, length, length)).masked_fill(later, _NOTHING)
        return self._run(ids, positions, mask, is_step=False)

    def step(self, tokens: Tensor) -> Tensor:
        """The next token of every row, ``[rows]``."""
        positions = (
            torch.full((1, 1), self.length, device=tokens.device)
            if self.missing is None
            else self.length - self.missing
        )
        mask = None if self.hidden is None else self.hidden[:, None, None, : self.length + 1]
        return self._run(tokens.unsqueeze(1), positions, mask, is_step=True)

    @torch.inference_mode()
    def reorder(self, rows: Tensor) -> None:
        """Row i goes on from what row ``rows[i]`` was."""
        filled = self.cache.narrow(4, 0, self.length)
        filled.copy_(filled.index_select(1, rows))
        if self.hidden is not None and self.missing is not None:
            self.hidden, self.missing = self.hidden[rows], self.missing[rows]

    def rotation(self, positions: Tensor) -> tuple[Tensor, Tensor] | None:
        """Cosines and sines of the positions, for models that turn queries and keys by them."""
        return None

    def _run(self, ids: Tensor, positions: Tensor, mask: Tensor | None, is_step: bool) -> Tensor:
        # What leaves is an ordinary tensor, which callers may write to.
        with torch.inference_mode():
            states = self._states(ids, positions, mask, is_step)
        scores = self.head(states, True)
        return scores if len(self.table.ranks) == 1 else gather_parts(scores, 1, self.table.sizes, self.table.ranks)

    def _states(self, ids: Tensor, positions: Tensor, mask: Tensor | None, is_step: bool) -> Tensor:
        """Of the last position of every row, behind the last norm."""
        batch, length = ids.shape
        end = self.length + length
        keys, values = self.cache.narrow(4, 0, end).unbind(3)
        is_causal = mask is None and not is_step
        slots = self.cache.narrow(4, self.length, length).unbind(0)
        look = Look(
            batch, length, slots, keys.unbind(0), values.unbind(0), mask, is_causal, is_step, self.rotation(positions)
        )
        x = self.embed(ids, positions).reshape(batch * length, -1)
        for block in self.blocks:
            x = block(x, look, self.cross_mask) if self.cross_mask is not None else block(x, look)
        self.length = end
        return self.norm(x if is_step else x.view(batch, length, -1)[:, -1])


class RotaryDecoder(CachedDecoder):
    """One whose layers turn queries and keys by their positions, ``rates`` from one to the next."""

    rates: Tensor

    def rotation(self, positions: Tensor) -> tuple[Tensor, Tensor] | None:
        angles = positions[:, None, :, None].float() * self.rates
        sines = torch.cat([-angles.sin(), angles.sin()], dim=-1)  # of the half that is turned against the other
        return torch.cat([angles.cos()] * 2, dim=-1).to(self.cache.dtype), sines.to(self.cache.dtype)


def norm_of(module: Any) -> Norm:
    """What a norm of ``libai.layers`` computes, on plain tensors."""
    weight = own_part(module.weight)
    shape = list(weight.shape)
    eps = module.eps
    if not hasattr(module, "bias"):
        return lambda x: F.rms_norm(x, shape, weight, eps)
    bias = own_part(module.bias)
    return lambda x: F.layer_norm(x, shape, weight, bias, eps)


def tensor_ranks() -> tuple[tuple[int, ...], int]:
    """The ranks that hold the parts of a layer together with this one, and which of them this is."""
    util = dist.get_dist_util()
    ranks = util.layout.ranks_of(0)
    if util.layout.tensor == 1:
        return (dist.get_rank(),), 0
    rows = ranks.reshape(-1, util.layout.tensor)
    row = next(row for row in rows.tolist() if dist.get_rank() in row)
    return tuple(row), row.index(dist.get_rank())


def encoder_states(layers: Sequence[Any], x: Tensor, norm: Norm, mask: Tensor | None, ranks: tuple[int, ...]) -> Tensor:
    """What the layers of an encoder make of its embedded input ``[batch, length, width]``; ``mask`` is what is added to
    scores."""
    batch, length, width = x.shape
    flat = x.reshape(batch * length, width)
    for layer in layers:
        block = Block(layer, 0, 0, ranks)
        room = x.new_empty(batch, block.attention.heads, 2, length, block.attention.size)
        flat = block(flat, Look(batch, length, [room], [room[:, :, 0]], [room[:, :, 1]], mask, False, False))
    return norm(flat).view(batch, length, width)


def added_mask(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """A mask ``[batch, keys]`` of 0 and 1 as what is added to scores; None where everything is looked at."""
    if mask is None or bool(mask.all()):
        return None
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(mask == 0, _NOTHING)[:, None, None, :]
