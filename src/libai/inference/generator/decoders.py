"""The decoders of our models: which weights go where."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from libai.inference.generator.decoding import (
    Block,
    CachedDecoder,
    RotaryBlock,
    RotaryDecoder,
    Table,
    added_mask,
    encoder_states,
    norm_of,
    tensor_ranks,
)
from libai.inference.generator.products import Product, own_part
from libai.layers import MultiheadAttention, TransformerLayer
from oneflow.engine.core.errors import ArgumentError


def gpt_decoder(model: Any, rows: int, capacity: int) -> CachedDecoder | None:
    """Of ``GPTForPreTraining``; None if one of its layers is of another class."""
    inner = model.GPT_model
    layers = inner.transformer.layers
    if not all(map(is_known, layers)):
        return None
    ranks, place = tensor_ranks()
    table = Table(inner.embeddings.token_embeddings.weight, ranks, place)
    positions = own_part(inner.embeddings.position_embeddings.weight)
    require_positions(capacity, len(positions), "max_seq_length")
    blocks = [Block(layer, i, rows, ranks) for i, layer in enumerate(layers)]
    shape = (rows, blocks[0].attention.heads, capacity, blocks[0].attention.size)
    head = Product(table.weight, None, rows)
    return CachedDecoder(
        blocks,
        lambda ids, at: table(ids) + F.embedding(at, positions),
        norm_of(inner.transformer.layernorm_f),
        head,
        table,
        shape,
    )


def llama_decoder(model: Any, rows: int, capacity: int) -> CachedDecoder:
    """Of ``LlamaForCausalLM``."""
    inner = model.model
    require_positions(capacity, inner.max_position_embeddings, "max_position_embeddings")
    ranks, place = tensor_ranks()
    table = Table(inner.embed_tokens.weight, ranks, place)
    blocks = [RotaryBlock(layer, i, rows, ranks) for i, layer in enumerate(inner.layers)]
    head = Product(table.weight if model.is_tied else model.lm_head.weight, None, rows)
    made = RotaryDecoder(
        blocks,
        lambda ids, at: table(ids),
        norm_of(inner.norm),
        head,
        table,
        (rows, blocks[0].heads, capacity, blocks[0].size),
    )
    made.rates = torch.tensor(inner.rates, device=table.weight.device)
    return made


def t5_decoder(
    model: Any, rows: int, capacity: int, encoder_input_ids: Tensor, attention_mask: Tensor | None
) -> CachedDecoder | None:
    """Of ``T5ForPreTraining``, for these inputs of its encoder; None if one of its layers is of another class."""
    inner = model.t5_model
    if not all(map(is_known, [*inner.encoder.layers, *inner.decoder.layers])):
        return None
    ranks, place = tensor_ranks()
    table = Table(inner.embedding.word_embeddings.weight, ranks, place)
    positions = own_part(inner.embedding.position_embeddings.weight)
    require_positions(max(capacity, encoder_input_ids.shape[1]), len(positions), "max_position_embeddings")

    def embed(ids: Tensor, at: Tensor) -> Tensor:
        return table(ids) + F.embedding(at, positions)

    mask = added_mask(attention_mask, table.weight.dtype)
    first = embed(encoder_input_ids, torch.arange(encoder_input_ids.shape[1], device=encoder_input_ids.device))
    states = encoder_states(inner.encoder.layers, first, norm_of(inner.encoder.final_layernorm), mask, ranks)
    blocks = [Block(layer, i, rows, ranks, states) for i, layer in enumerate(inner.decoder.layers)]
    shape = (rows, blocks[0].attention.heads, capacity, blocks[0].attention.size)
    head = Product(table.weight, inner.lm_head.bias, rows)
    made = CachedDecoder(blocks, embed, norm_of(inner.decoder.final_layernorm), head, table, shape)
    made.cross_mask = mask
    return made


def is_known(layer: Any) -> bool:
    """Whether a layer computes what :class:`Block` does: classes of one's own may compute something else."""
    parts = (
        [layer.self_attention, *([layer.cross_attention] if layer.is_decoder else [])]
        if type(layer) is TransformerLayer
        else []
    )
    return bool(parts) and all(type(part) is MultiheadAttention for part in parts)


def require_positions(asked: int, there: int, name: str) -> None:
    """Refuses texts that are longer than the model's positions."""
    if asked > there:
        raise ArgumentError(
            f"a text of {asked} tokens is longer than the {there} positions of the model ({name}); give a smaller "
            f"max_length or max_new_tokens, or a shorter prompt"
        )
