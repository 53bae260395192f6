"""Reductions: dims that stay can be split; over a split dim each rank reduces its part, and the parts are then
reduced."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, prod
from typing import Any

import torch

from oneflow.engine.core.sbp import BROADCAST, PARTIAL, Sbp, split
from oneflow.engine.sharding.call import Call, nbytes
from oneflow.engine.sharding.rules.patterns import (
    Args,
    Kwargs,
    Lower,
    dim_pairs,
    float_outputs,
    other_dims,
    partial_sums,
)
from oneflow.engine.sharding.rules.rule import Local, Rules, Signature, Value

aten = torch.ops.aten
RULES = Rules()


_ALONG = {aten.any.dims, aten.all.dims}  # along no dims, these reduce nothing


def reduced_dims(call: Call) -> list[int]:
    """The dims that the call reduces; none named means all."""
    rank = len(call.shapes[0])
    dims = call.arg("dim") if any(a.name == "dim" for a in call.op._schema.arguments) else None
    named = [dims] if isinstance(dims, int) else dims
    if not named and not (call.op in _ALONG and named is not None):
        return list(range(rank))
    return [dim % rank for dim in named] if rank else []


def _kept(call: Call) -> Iterator[Signature]:
    """A split of each dim that is not reduced."""
    kept = other_dims(call.shapes[0], reduced_dims(call))
    keeps_place = len(call.out) == len(call.shapes[0])
    yield from dim_pairs(call, [(dim, dim if keeps_place else place) for place, dim in enumerate(kept)])


def _reduced(call: Call, layout: Sbp, lower: Lower | None, moved: int = 0) -> Iterator[Signature]:
    """A split of each dim that is reduced."""
    for dim in reduced_dims(call):
        if call.shapes[0][dim] >= call.parts:
            yield Signature((split(dim),), (layout,) * len(call.outputs), lower, moved)


@RULES.rule(aten.sum.default, aten.sum.dim_IntList)
def summed(call: Call) -> Iterator[Signature]:
    yield from _kept(call)
    yield from partial_sums(call, "self")
    if float_outputs(call):
        yield from _reduced(call, PARTIAL, None)
    else:
        yield from _reduced(call, BROADCAST, whole_sum, nbytes(call.first))


def whole_sum(local: Local, call: Call, args: Args, kwargs: Kwargs) -> Value:
    return local.reduce(local.call(call.op, *args, **kwargs))


@RULES.rule(aten.mean.default, aten.mean.dim)
def averaged(call: Call) -> Iterator[Signature]:
    yield from _kept(call)
    yield from partial_sums(call, "self")
    yield from _reduced(call, PARTIAL, weighted_mean)


def weighted_mean(local: Local, call: Call, args: Args, kwargs: Kwargs) -> Value:
    """The mean of this rank's part by its share of the elements: a sum of all first could leave the range of a half."""
    return local.call(aten.mul.Scalar, local.call(call.op, *args, **kwargs), _share(local, call))


def _share(local: Local, call: Call) -> float:
    """Which part of the elements that make one element of the output lie on this rank."""
    part, dims = local.input_shape(0), reduced_dims(call)
    return prod(part[dim] for dim in dims) / prod(call.shapes[0][dim] for dim in dims)


@RULES.rule(aten.amax.default, aten.max.default)
def largest(call: Call) -> Iterator[Signature]:
    yield from _kept(call)
    yield from _reduced(call, BROADCAST, whole_max, nbytes(call.first))


def whole_max(local: Local, call: Call, args: Args, kwargs: Kwargs) -> Value:
    return local.reduce(local.call(call.op, *args, **kwargs), "max")


@RULES.rule(aten.amin.default, aten.min.default)
def smallest(call: Call) -> Iterator[Signature]:
    yield from _kept(call)
    yield from _reduced(call, BROADCAST, whole_min, nbytes(call.first))


def whole_min(local: Local, call: Call, args: Args, kwargs: Kwargs) -> Value:
    return local.reduce(local.call(call.op, *args, **kwargs), "min")


@RULES.rule(aten.prod.default, aten.prod.dim_int)
def multiplied(call: Call) -> Iterator[Signature]:
    yield from _kept(call)
    yield from _reduced(call, BROADCAST, whole_product, nbytes(call.first))


def whole_product(local: Local, call: Call, args: Args, kwargs: Kwargs) -> Value:
    return local.reduce(local.call(call.op, *args, **kwargs), "product")


@RULES.rule(aten.any.default, aten.any.dim, aten.any.dims)
def any_of(call: Call) -> Iterator[Signature]:
    yield from _kept(call)
    yield from _reduced(call, BROADCAST, whole_any, nbytes(call.first))


def whole_any(local: Local, call: Call, args: Args, kwargs: Kwargs) -> Value:
    return _truth(local, call, args, kwargs, "max")


@RULES.rule(aten.all.default, aten.all.dim, aten.all.dims)
def all_of(call: Call) -> Iterator[Signature]:
    yield from _kept(call)
    yield from _reduced(call, BROADCAST, whole_all, nbytes(call.first))


def whole_all(local: Local, call: Call, args: Args, kwargs: Kwargs) -> Value:
    return _truth(local, call, args, kwargs, "min")


def _truth(local: Local, call: Call, args: Args, kwargs: Kwargs, how: str) -> Value:
    """Truth values travel as bytes: collectives do not know them."""
    part = local.call(aten._to_copy.default, local.call(call.op, *args, **kwargs), dtype=torch.uint8)
    return local.call(aten._to_copy.default, local.reduce(part, how), dtype=call.dtype)


@RULES.rule(aten.logsumexp.default)
def log_summed(call: Call) -> Iterator[Signature]:
    yield from _kept(call)
    yield from _reduced(call, BROADCAST, whole_logsumexp, 2 * nbytes(call.first))


def whole_logsumexp(local: Local, call: Call, args: Args, kwargs: Kwargs) -> Value:
    """log(sum(exp(x - m))) + m with the largest of all ranks as m, so that nothing overflows; an infinite m is left out
    of it."""
    x, dims = args[0], reduced_dims(call)
    top = local.reduce(local.call(aten.amax.default, x, dims, True), "max")
    top = local.call(aten.masked_fill.Scalar, top, local.call(aten.isinf.default, top), 0)
    terms = local.call(aten.exp.default, local.call(aten.sub.Tensor, x, top))
    total = local.reduce(local.call(aten.sum.dim_IntList, terms, dims, True))
    result = local.call(aten.add.Tensor, local.call(aten.log.default, total), top)
    return local.call(aten.reshape.default, result, list(local.shape()))


@RULES.rule(aten.var_mean.correction, aten.var.correction)
def spread(call: Call) -> Iterator[Signature]:
    yield from _kept(call)
    if _elements(call) > _correction(call):
        yield from _reduced(call, BROADCAST, whole_variance, 2 * nbytes(call.first))


def whole_variance(local: Local, call: Call, args: Args, kwargs: Kwargs) -> Any:
    """In two passes, the mean of all ranks first: sums of squares alone would lose the digits of a small variance."""
    x, dims, share = args[0], reduced_dims(call), _share(local, call)
    mean = local.reduce(local.call(aten.mul.Scalar, local.call(aten.mean.dim, x, dims, True), share))
    squares = local.call(aten.pow.Tensor_Scalar, local.call(aten.sub.Tensor, x, mean), 2)
    unbiased = share * _elements(call) / (_elements(call) - _correction(call))
    variance = local.reduce(local.call(aten.mul.Scalar, local.call(aten.mean.dim, squares, dims, True), unbiased))
    found = [local.call(aten.reshape.default, value, list(local.shape())) for value in (variance, mean)]
    return tuple(found) if call.op is aten.var_mean.correction else found[0]


def _elements(call: Call) -> int:
    return prod(call.shapes[0][dim] for dim in reduced_dims(call))


def _correction(call: Call) -> float:
    correction = call.arg("correction")
    return 1 if correction is None else correction


@RULES.rule(aten.norm.ScalarOpt_dim, aten.linalg_vector_norm.default)
def normed(call: Call) -> Iterator[Signature]:
    yield from _kept(call)
    if 0 < _order(call) < inf:
        yield from _reduced(call, BROADCAST, whole_norm, nbytes(call.first))


def whole_norm(local: Local, call: Call, args: Args, kwargs: Kwargs) -> Value:
    power = _order(call)
    part = local.call(aten.pow.Tensor_Scalar, local.call(call.op, *args, **kwargs), power)
    return local.call(aten.pow.Tensor_Scalar, local.reduce(part), 1 / power)


def _order(call: Call) -> float:
    order = call.arg("p" if call.op is aten.norm.ScalarOpt_dim else "ord")
    return 2 if order is None else order


RULES.rule(aten.argmax.default, aten.argmin.default, aten.max.dim, aten.min.dim)(_kept)
