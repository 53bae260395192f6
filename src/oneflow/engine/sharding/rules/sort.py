"""Ops along one dim in which every element of the result may depend on the whole line: sorting and running products."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from oneflow.engine.sharding.call import Call
from oneflow.engine.sharding.rules.patterns import dim_pairs, other_dims, partial_sums
from oneflow.engine.sharding.rules.rule import Rules, Signature

aten = torch.ops.aten

RULES = Rules()


@RULES.rule(aten.sort.default, aten.sort.stable, aten.topk.default, aten.cumprod.default)
def along_lines(call: Call) -> Iterator[Signature]:
    """Lines by themselves: the other dims can be split."""
    return dim_pairs(call, [(dim, dim) for dim in other_dims(call.out, [call.arg("dim")])])


@RULES.rule(aten.cumsum.default)
def cumsum(call: Call) -> Iterator[Signature]:
    """Lines by themselves, and linear."""
    yield from along_lines(call)
    yield from partial_sums(call, "self")
