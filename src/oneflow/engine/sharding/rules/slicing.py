"""Ops that take, pad or stretch along some dims: the other dims can be split, and all of them are linear."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from oneflow.engine.core.sbp import split
from oneflow.engine.sharding.call import Call
from oneflow.engine.sharding.rules.patterns import all_partial, dim_pairs, local_size, other_dims, partial_sums
from oneflow.engine.sharding.rules.rule import Rules, Signature

aten = torch.ops.aten
RULES = Rules()


@RULES.rule(aten.slice.Tensor, aten.slice_scatter.default)
def sliced(call: Call) -> Iterator[Signature]:
    """A slice that takes the whole dim leaves all dims alone."""
    yield from all_partial(call)
    yield from _same_dims(call, [] if call.shapes[-1] == call.out else [call.arg("dim")])


RULES.rule(aten.slice_backward.default, localise=local_size("input_sizes"))(sliced)


@RULES.rule(aten.select.int)
def selected(call: Call) -> Iterator[Signature]:
    yield from all_partial(call)
    yield from dim_pairs(call, zip(other_dims(call.shapes[0], [call.arg("dim")]), range(len(call.out))))


@RULES.rule(aten.select_scatter.default)
def selection_replaced(call: Call) -> Iterator[Signature]:
    yield from all_partial(call)
    for place, dim in enumerate(other_dims(call.out, [call.arg("dim")])):
        if call.out[dim] >= call.parts:
            yield Signature((split(dim), split(place)), (split(dim),))


@RULES.rule(aten.select_backward.default, localise=local_size("input_sizes"))
def selection_put_back(call: Call) -> Iterator[Signature]:
    yield from all_partial(call)
    yield from dim_pairs(call, enumerate(other_dims(call.out, [call.arg("dim")])))


@RULES.rule(aten.constant_pad_nd.default)
def padded(call: Call) -> Iterator[Signature]:
    if call.arg("value") == 0:
        yield from all_partial(call)
    yield from _same_dims(call, [-1 - i // 2 for i, count in enumerate(call.arg("pad")) if count])


@RULES.rule(aten.flip.default)
def flipped(call: Call) -> Iterator[Signature]:
    yield from all_partial(call)
    yield from _same_dims(call, call.arg("dims"))


@RULES.rule(aten.roll.default)
def rolled(call: Call) -> Iterator[Signature]:
    """Without dims the elements move through all of them."""
    yield from all_partial(call)
    if call.arg("dims"):
        yield from _same_dims(call, call.arg("dims"))


@RULES.rule(aten.reflection_pad2d.default, aten.replication_pad2d.default)
def mirrored(call: Call) -> Iterator[Signature]:
    yield from all_partial(call)
    yield from _same_dims(call, [-1, -2])


@RULES.rule(aten.reflection_pad2d_backward.default, aten.replication_pad2d_backward.default)
def mirror_differentiated(call: Call) -> Iterator[Signature]:
    yield from partial_sums(call, "grad_output")
    yield from _same_dims(call, [-1, -2])


_UPSAMPLES = "nearest1d nearest2d nearest3d linear1d bilinear2d bicubic2d trilinear3d".split()


@RULES.rule(*[getattr(aten, f"upsample_{name}").default for name in _UPSAMPLES])
def stretched(call: Call) -> Iterator[Signature]:
    yield from all_partial(call)
    yield from dim_pairs(call, [(0, 0), (1, 1)])


RULES.rule(
    *[getattr(aten, f"upsample_{name}_backward").default for name in _UPSAMPLES], localise=local_size("input_size")
)(stretched)


def _same_dims(call: Call, used: list[int]) -> Iterator[Signature]:
    """The dims that the op does not work along, at the same place in every input and output."""
    kept = other_dims(call.out, used)
    yield from dim_pairs(call, zip(kept, kept))
