"""Attention in one kernel: samples and heads by themselves. Along the positions every row looks at all others, so they
are never split."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from oneflow.engine.core.sbp import Sbp, split
from oneflow.engine.sharding.call import Call
from oneflow.engine.sharding.rules.named import broadcast_split, shape_of, signature
from oneflow.engine.sharding.rules.patterns import partial_sums
from oneflow.engine.sharding.rules.rule import Rules, Signature

aten = torch.ops.aten

RULES = Rules()


@RULES.rule(aten._scaled_dot_product_flash_attention_for_cpu.default)
def attention(call: Call) -> Iterator[Signature]:
    """Not with dropout: its mask would depend on who computes it."""
    if call.arg("dropout_p"):
        return
    for dim, mask in _free_dims(call):
        here = split(dim)
        yield signature(call, (here, here), query=here, key=here, value=here, attn_mask=mask)


@RULES.rule(aten._scaled_dot_product_flash_attention_for_cpu_backward.default)
def attention_backward(call: Call) -> Iterator[Signature]:
    """As the forward op; linear in the gradient."""
    if call.arg("dropout_p"):
        return
    for dim, mask in _free_dims(call):
        tensors = dict.fromkeys(("grad_out", "query", "key", "value", "out", "logsumexp"), split(dim))
        yield signature(call, (split(dim),) * 3, **tensors, attn_mask=mask)
    yield from partial_sums(call, "grad_out")


def _free_dims(call: Call) -> Iterator[tuple[int, Sbp]]:
    """Samples and heads that can be split, with the layout of the mask; heads that several queries share stay
    together."""
    query, key = shape_of(call, "query"), shape_of(call, "key")
    scores = (*query[:3], key[2])
    for dim in (d for d in (0, 1) if query[d] == key[d] and query[d] >= call.parts):
        mask = call.arg("attn_mask")
        yield dim, broadcast_split(tuple(mask.shape), scores, dim) if mask is not None else split(dim)
