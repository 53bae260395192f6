"""Random bits: a function of seed, step and an element's index in the whole tensor, so each rank makes its own part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from oneflow.engine.core.sbp import BROADCAST, split
from oneflow.engine.ops.kernels import counter_random  # noqa: F401  registers the ops that are named here
from oneflow.engine.sharding.call import Call
from oneflow.engine.sharding.rules.rule import Local, Rules, Signature, Value, dims_of

RULES = Rules()

_ops = torch.ops.oneflow


@RULES.rule(_ops.random_bits.default)
def random_bits(call: Call) -> Iterator[Signature]:
    """Every dim can be split: no element depends on another."""
    for dim in dims_of(call.out, call.parts):
        yield Signature((BROADCAST,), (split(dim),), _lower_random_bits)


def _lower_random_bits(local: Local, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value:
    shape, seed, step = args
    return local.call(_ops.random_bits_part.default, list(shape), list(local.start()), list(local.shape()), seed, step)
