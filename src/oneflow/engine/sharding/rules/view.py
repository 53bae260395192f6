"""Ops that give values another shape or order. All are linear; a split passes where its dim survives."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import torch

from oneflow.engine.core.sbp import BROADCAST, split
from oneflow.engine.sharding.call import Call
from oneflow.engine.sharding.rules.patterns import Args, Kwargs, all_partial, dim_pairs, local_size, other_dims
from oneflow.engine.sharding.rules.rule import Local, Rules, Signature, Value, dims_of

aten = torch.ops.aten
RULES = Rules()


def reshaped(local: Local, call: Call, args: Args, kwargs: Kwargs) -> Value:
    return local.call(aten.reshape.default, args[0], list(local.shape()))


@RULES.rule(aten.view.default, aten._unsafe_view.default, localise=local_size("size"))
def viewed(call: Call) -> Iterator[Signature]:
    yield from all_partial(call)
    for source in dims_of(call.shapes[0], call.parts):
        for target in dims_of(call.out, call.parts):
            if _slices_agree(call, source, target):
                yield Signature((split(source),), (split(target),))


RULES.rule(aten.reshape.default, localise=local_size("shape"))(viewed)


def _slices_agree(call: Call, source: int, target: int) -> bool:
    """Whether the parts of a dim before a view hold the same elements as those of a dim after it.

    As many slices come before either, so they do if the dims are the same; if dims merge or part, only even parts begin
    at equal places.
    """
    before, after = call.shapes[0], call.out
    if 0 in before or prod(before[:source]) != prod(after[:target]):
        return False
    return before[source] == after[target] or (before[source] % call.parts == 0 and after[target] % call.parts == 0)


@RULES.rule(aten.expand.default, localise=local_size("size"))
def expanded(call: Call) -> Iterator[Signature]:
    yield from all_partial(call)
    shape = call.shapes[0]
    new = len(call.out) - len(shape)
    for dim in dims_of(call.out, call.parts):
        own = dim - new
        kept = own >= 0 and shape[own] == call.out[dim]
        yield Signature((split(own) if kept else BROADCAST,), (split(dim),))


@RULES.rule(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims)
def squeezed(call: Call) -> Iterator[Signature]:
    """Lowered, since the op would also drop a split dim of which a rank holds one slice."""
    yield from all_partial(call)
    kept = [dim for dim, size in enumerate(call.shapes[0]) if size != 1 or dim not in _squeezed_dims(call)]
    yield from dim_pairs(call, zip(kept, range(len(kept))), reshaped)


def _squeezed_dims(call: Call) -> list[int]:
    rank = len(call.shapes[0])
    if call.op is aten.squeeze.default:
        return list(range(rank))
    dims = call.arg("dim")
    return [dim % rank for dim in ([dims] if isinstance(dims, int) else dims)] if rank else []


@RULES.rule(aten.unsqueeze.default)
def unsqueezed(call: Call) -> Iterator[Signature]:
    yield from all_partial(call)
    yield from dim_pairs(call, enumerate(other_dims(call.out, [call.arg("dim")])))


@RULES.rule(aten.permute.default)
def permuted(call: Call) -> Iterator[Signature]:
    yield from all_partial(call)
    order = [dim % len(call.out) for dim in call.arg("dims")]
    yield from dim_pairs(call, zip(order, range(len(order))))


@RULES.rule(aten.transpose.int)
def transposed(call: Call) -> Iterator[Signature]:
    yield from all_partial(call)
    if call.out:
        order = list(range(len(call.out)))
        first, second = call.arg("dim0"), call.arg("dim1")
        order[first], order[second] = order[second], order[first]
        yield from dim_pairs(call, zip(order, range(len(order))))


@RULES.rule(aten.t.default)
def matrix_transposed(call: Call) -> Iterator[Signature]:
    yield from all_partial(call)
    rank = len(call.out)
    yield from dim_pairs(call, zip(reversed(range(rank)), range(rank)))


@RULES.rule(aten.unbind.int)
def unbound(call: Call) -> Iterator[Signature]:
    yield from all_partial(call)
    if call.outputs:
        yield from dim_pairs(call, zip(other_dims(call.shapes[0], [call.arg("dim")]), range(len(call.out))))


@RULES.rule(aten.stack.default)
def stacked(call: Call) -> Iterator[Signature]:
    yield from all_partial(call)
    yield from dim_pairs(call, enumerate(other_dims(call.out, [call.arg("dim")])))


@RULES.rule(aten.cat.default)
def concatenated(call: Call) -> Iterator[Signature]:
    yield from all_partial(call)
    if all(len(shape) == len(call.out) for shape in call.shapes):  # an empty tensor of one dim goes with any others
        kept = other_dims(call.out, [call.arg("dim")])
        yield from dim_pairs(call, zip(kept, kept))


@RULES.rule(
    aten.split.Tensor, aten.split_with_sizes.default, aten.unsafe_split.Tensor, aten.unsafe_split_with_sizes.default
)
def divided_into_pieces(call: Call) -> Iterator[Signature]:
    yield from all_partial(call)
    kept = other_dims(call.shapes[0], [call.arg("dim")])
    yield from dim_pairs(call, zip(kept, kept))
