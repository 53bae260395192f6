"""Pooling: each plane (one image or volume of one channel) by itself.

All dims before the planes can be split. Indices of a maximum count within their plane, so a part's are the whole's.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from oneflow.engine.core.sbp import split
from oneflow.engine.sharding.call import Call
from oneflow.engine.sharding.rules.patterns import partial_sums
from oneflow.engine.sharding.rules.rule import Rules, Signature, dims_of

aten = torch.ops.aten

RULES = Rules()

_THREE_DIMS = {
    aten.max_pool3d_with_indices.default,
    aten.max_pool3d_with_indices_backward.default,
    aten.avg_pool3d.default,
    aten.avg_pool3d_backward.default,
}


@RULES.rule(aten.max_pool2d_with_indices.default, aten.max_pool3d_with_indices.default)
def max_pool(call: Call) -> Iterator[Signature]:
    """Plane by plane; a maximum is not linear."""
    return _planes(call)


@RULES.rule(aten.avg_pool2d.default, aten.avg_pool3d.default)
def avg_pool(call: Call) -> Iterator[Signature]:
    """Plane by plane; a mean is linear."""
    yield from _planes(call)
    yield from partial_sums(call, "self")


@RULES.rule(aten.max_pool2d_with_indices_backward.default, aten.max_pool3d_with_indices_backward.default)
@RULES.rule(aten.avg_pool2d_backward.default, aten.avg_pool3d_backward.default)
def pool_backward(call: Call) -> Iterator[Signature]:
    """Plane by plane, and linear in the gradient."""
    yield from _planes(call)
    yield from partial_sums(call, "grad_output")


def _planes(call: Call) -> Iterator[Signature]:
    """All tensors split on the same dim before the planes."""
    rank = 3 if call.op in _THREE_DIMS else 2
    for dim in dims_of(call.shapes[0][:-rank], call.parts):
        yield Signature((split(dim),) * len(call.inputs), (split(dim),) * len(call.outputs))
