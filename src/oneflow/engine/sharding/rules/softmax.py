"""Softmax and the loss of class numbers, with rows or classes split.

With classes split (a model parallel classifier) a row's maximum and sum are reduced over the ranks, one number per row;
the scores themselves never move.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

import torch

from oneflow.engine.core.sbp import BROADCAST, PARTIAL, split
from oneflow.engine.ops.kernels import part
from oneflow.engine.sharding.call import Call
from oneflow.engine.sharding.rules.named import arguments, signature
from oneflow.engine.sharding.rules.patterns import partial_sums
from oneflow.engine.sharding.rules.rule import Local, Rules, Signature, Value, dims_of

aten = torch.ops.aten

RULES = Rules()

_NO_REDUCTION, _MEAN, _SUM = range(3)


@RULES.rule(aten._softmax.default, aten._log_softmax.default)
def softmax(call: Call) -> Iterator[Signature]:
    """Each row by itself, so the other dims can be split. Classes: the parts of a row share its maximum and its sum."""
    classes = _class_dim(call)
    for dim in dims_of(call.out, call.parts):
        if dim != classes:
            yield signature(call, (split(dim),), self=split(dim))
        else:
            shared = signature(call, (split(dim),), _lower_softmax, 2 * _row_bytes(call), self=split(dim))
            yield replace(shared, touched=2 * _whole_bytes(call))


@RULES.rule(aten._safe_softmax.default)
def safe_softmax(call: Call) -> Iterator[Signature]:
    """That of attention by its formula: each row by itself."""
    for dim in dims_of(call.out, call.parts):
        if dim != _class_dim(call):
            yield signature(call, (split(dim),), self=split(dim))


@RULES.rule(aten._softmax_backward_data.default, aten._log_softmax_backward_data.default)
def softmax_backward(call: Call) -> Iterator[Signature]:
    """As the forward op, with one sum per row to share; linear in the gradient."""
    classes = _class_dim(call)
    for dim in dims_of(call.out, call.parts):
        lower, moved = (None, 0) if dim != classes else (_lower_softmax_backward, _row_bytes(call))
        found = signature(call, (split(dim),), lower, moved, grad_output=split(dim), output=split(dim))
        yield found if lower is None else replace(found, touched=4 * _whole_bytes(call))
    yield from partial_sums(call, "grad_output")


@RULES.rule(aten.nll_loss_forward.default)
def nll_loss(call: Call) -> Iterator[Signature]:
    """Rows by themselves, their sum in parts. Classes: the rank that holds a row's label has its loss, the others 0.
    The second output is the weight of all labels that count, by which a mean is divided; without a reduction it is
    always 0."""
    scores, reduction = call.shapes[0], call.arg("reduction")
    if len(scores) != 2:
        return
    has_mean, weight_bytes = reduction == _MEAN, call.dtype.itemsize
    second = {_NO_REDUCTION: BROADCAST, _MEAN: BROADCAST, _SUM: PARTIAL}[reduction]
    if scores[0] >= call.parts:
        rows = split(0) if reduction == _NO_REDUCTION else PARTIAL
        yield signature(
            call,
            (rows, second),
            _lower_reduced_loss if has_mean else None,
            weight_bytes * has_mean,
            self=split(0),
            target=split(0),
        )
    if scores[1] >= call.parts and call.arg("weight") is None:
        lower = _lower_nll_loss if reduction == _NO_REDUCTION else _lower_reduced_loss
        yield signature(call, (PARTIAL, second), lower, weight_bytes * has_mean, self=split(1))


@RULES.rule(aten.nll_loss_backward.default)
def nll_loss_backward(call: Call) -> Iterator[Signature]:
    """Rows by themselves. Classes: each rank writes the gradients of the labels it holds. Linear in the gradient."""
    scores = call.out
    if len(scores) != 2:
        return
    if scores[0] >= call.parts:
        gradient = split(0) if call.arg("reduction") == _NO_REDUCTION else BROADCAST
        yield signature(call, (split(0),), grad_output=gradient, self=split(0), target=split(0))
    if scores[1] >= call.parts and call.arg("weight") is None:
        yield signature(call, (split(1),), _lower_nll_loss_backward, self=split(1))
    yield from partial_sums(call, "grad_output")


def _class_dim(call: Call) -> int:
    return call.arg("dim") % max(len(call.out), 1)


def _whole_bytes(call: Call) -> int:
    return prod(call.out) * call.dtype.itemsize


def _row_bytes(call: Call) -> int:
    """One float32 per row."""
    return 4 * prod(call.out) // max(call.out[_class_dim(call)], 1)


def _lower_softmax(local: Local, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value:
    x, dim, dtype = args[0], _class_dim(call), call.dtype
    top = local.reduce(local.call(aten.amax.default, x, [dim], True), "max")
    if call.op is aten._log_softmax.default:
        total = local.reduce(local.call(part.exponential_sum, x, top, dim))
        return local.call(part.log_normalised, x, top, total, dtype)
    powers = local.call(aten.exp.default, local.call(part.shifted, x, top))
    total = local.reduce(local.call(aten.sum.dim_IntList, powers, [dim], True))
    return local.call(part.normalised, powers, total, dtype)


def _lower_softmax_backward(local: Local, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value:
    gradient, output, dim, dtype = args[0], args[1], _class_dim(call), call.dtype
    if call.op is aten._log_softmax_backward_data.default:
        total = local.reduce(local.call(part.wide_sum, gradient, dim))
        return local.call(part.log_softmax_gradient, gradient, output, total, dtype)
    total = local.reduce(local.call(part.product_sum, gradient, output, dim))
    return local.call(part.softmax_gradient, gradient, output, total, dtype)


def _lower_nll_loss(local: Local, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value:
    named = arguments(call, args, kwargs)
    start, classes = local.input_start(0)[1], call.shapes[0][1]
    return local.call(part.nll_loss, named["self"], named["target"], named["ignore_index"], start, classes)


def _lower_reduced_loss(local: Local, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value:
    """A sum of the losses of this rank's rows and classes, and the weight of the labels among them: of all ranks where
    it divides a mean."""
    named = arguments(call, args, kwargs)
    scores, target, weight, ignored = (named[name] for name in ("self", "target", "weight", "ignore_index"))
    start, size, classes = local.input_start(0)[1], local.input_shape(0)[1], call.shapes[0][1]
    total = local.call(part.label_weight, target, weight, ignored, start, size, classes, call.dtype)
    if named["reduction"] == _MEAN:
        total = local.reduce(total)
    if size == classes:
        loss = local.call(
            operator.getitem, local.call(aten.nll_loss_forward.default, scores, target, weight, _SUM, ignored), 0
        )
    else:
        loss = local.call(part.nll_loss_sum, scores, target, ignored, start, classes)
    if named["reduction"] == _MEAN:
        loss = local.call(aten.div.Tensor, loss, total)
    return local.call(aten.to.dtype, loss, call.dtype), local.call(aten.to.dtype, total, call.dtype)


def _lower_nll_loss_backward(local: Local, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value:
    named = arguments(call, args, kwargs)
    start, classes = local.start()[1], call.out[1]
    gradient = named["grad_output"]
    if named["reduction"] == _MEAN:
        gradient = local.call(aten.div.Tensor, gradient, named["total_weight"])
    return local.call(
        part.nll_loss_gradient, gradient, named["self"], named["target"], named["ignore_index"], start, classes
    )
