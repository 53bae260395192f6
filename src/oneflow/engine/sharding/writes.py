"""Calls that change their arguments: which of them, and how a copy into a tensor may lie."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from oneflow.engine.core.sbp import BROADCAST, PARTIAL, Sbp, split
from oneflow.engine.sharding.call import Call
from oneflow.engine.sharding.rules.rule import Signature


def any_layout(shape: Sequence[int], parts: int) -> list[Sbp]:
    """The layouts that a tensor can have on ``parts`` ranks, each of which gets something."""
    return [BROADCAST, PARTIAL, *(split(d) for d, size in enumerate(shape) if size >= parts)]


def copies(call: Call, parts: int) -> list[Signature]:
    """The ways to run ``copy_``: both tensors lie in one layout, whatever it is."""
    return [Signature((sbp, sbp), (sbp,)) for sbp in any_layout(call.out, parts)]


@cache
def shares_memory(op: Any) -> bool:
    """Whether what an op gives lies in the memory of its first tensor: a view, one that writes there, the hint of a
    layout."""
    return isinstance(op, torch._ops.OpOverload) and (
        op.name() == "oneflow::layout" or any(a.alias_info is not None for a in op._schema.returns)
    )


def written(call: Call) -> list[int]:
    """The places among a call's tensors of those it changes: where one is boxed, the change would be lost."""
    if not isinstance(call.op, torch._ops.OpOverload):
        return []
    if call.op is torch.ops.aten.native_batch_norm.default:  # its schema does not say so
        changed = ["running_mean", "running_var"] if call.arg("training") else []
    else:
        changed = [a.name for a in call.op._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    return [i for name in changed if (i := call.index(name)) is not None]
