"""Normalisation.

Batch norm in training mode normalises by the statistics of the whole logical batch: ranks that hold parts of it share
their mean and variance going forward, and two sums per channel going back. All else follows from what an op averages
over.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import torch

from oneflow.engine.core.sbp import BROADCAST, PARTIAL, Sbp, split
from oneflow.engine.ops.kernels import batch_statistics
from oneflow.engine.sharding.call import Call, Shape
from oneflow.engine.sharding.rules.convolution import groups_align
from oneflow.engine.sharding.rules.named import arguments, kept, replaced, shape_of, signature
from oneflow.engine.sharding.rules.patterns import other_dims
from oneflow.engine.sharding.rules.rule import Local, Rules, Signature, Value, dims_of

aten = torch.ops.aten

RULES = Rules()

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@RULES.rule(aten.native_layer_norm.default)
def layer_norm(call: Call) -> Iterator[Signature]:
    """The dims before the normalised ones hold independent rows."""
    for dim in _row_dims(call, call.out):
        yield signature(call, (split(dim),) * 3, input=split(dim))


@RULES.rule(aten.native_layer_norm_backward.default)
def layer_norm_backward(call: Call) -> Iterator[Signature]:
    """Rows by themselves; the gradients of scale and offset sum over rows. Linear in the gradient."""
    mask = call.arg("output_mask")
    for dim in _row_dims(call, call.shapes[0]):
        here = split(dim)
        yield signature(call, kept(mask, (here, PARTIAL, PARTIAL)), grad_out=here, input=here, mean=here, rstd=here)
    yield signature(call, kept(mask, (PARTIAL,) * 3), grad_out=PARTIAL)


def _row_dims(call: Call, shape: Shape) -> list[int]:
    return dims_of(shape[: len(shape) - len(call.arg("normalized_shape"))], call.parts)


def _localise_groups(local: Local, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """Samples, channels and groups are those of the rank's part of x."""
    x = local.input_shape(call.index("input") or 0)
    groups, rest = divmod(call.arg("group") * x[1], shape_of(call, "input")[1])
    assert groups and not rest, f"a split of the channels of {call.op} cuts through a group"
    return replaced(call, args, kwargs, N=x[0], C=x[1], HxW=prod(x[2:]), group=groups)


@RULES.rule(aten.native_group_norm.default, localise=_localise_groups)
def group_norm(call: Call) -> Iterator[Signature]:
    """Each group of channels of each sample by itself: samples, or whole groups, can be split."""
    if call.out[0] >= call.parts:
        yield signature(call, (split(0),) * 3, input=split(0))
    if groups_align(call.arg("group"), (call.out[1],), call.parts):
        yield signature(call, (split(1),) * 3, input=split(1), weight=split(0), bias=split(0))


@RULES.rule(aten.native_group_norm_backward.default, localise=_localise_groups)
def group_norm_backward(call: Call) -> Iterator[Signature]:
    """As the forward op; the gradients of scale and offset sum over samples. Linear in the gradient."""
    mask, shape = call.arg("output_mask"), call.shapes[0]
    if shape[0] >= call.parts:
        samples = dict.fromkeys(("grad_out", "input", "mean", "rstd"), split(0))
        yield signature(call, kept(mask, (split(0), PARTIAL, PARTIAL)), **samples)
    if groups_align(call.arg("group"), (shape[1],), call.parts):
        groups = dict.fromkeys(("grad_out", "input", "mean", "rstd"), split(1))
        yield signature(call, kept(mask, (split(1), split(0), split(0))), **groups, weight=split(0))
    yield signature(call, kept(mask, (PARTIAL,) * 3), grad_out=PARTIAL)


@RULES.rule(aten.native_batch_norm.default)
def batch_norm(call: Call) -> Iterator[Signature]:
    """Channels by themselves. Other dims: in evaluation mode the statistics are given; in training mode they are
    shared."""
    training, shape = call.arg("training"), call.out
    lower, moved = (_lower_batch_norm, 8 * call.parts * shape[1]) if training else (None, 0)
    for dim in dims_of(shape, call.parts):
        if dim != 1:
            yield signature(call, (split(dim), BROADCAST, BROADCAST), lower, moved, input=split(dim))
    if shape[1] >= call.parts:
        saved = split(0) if training else BROADCAST  # empty in evaluation mode
        vectors = dict.fromkeys(("weight", "bias", "running_mean", "running_var"), split(0))
        yield signature(call, (split(1), saved, saved), input=split(1), **vectors)


@RULES.rule(aten.native_batch_norm_backward.default)
def batch_norm_backward(call: Call) -> Iterator[Signature]:
    """As the forward op. The gradients of scale and offset sum over the batch; in training mode that of x needs those
    sums, so they come out whole. Linear in the gradient."""
    mask, shape, train = call.arg("output_mask"), call.shapes[0], call.arg("train")
    for dim in [dim for dim in other_dims(shape, [1]) if shape[dim] >= call.parts]:
        inputs = {"grad_out": split(dim), "input": split(dim)}
        if train:
            outputs = kept(mask, (split(dim), BROADCAST, BROADCAST))
            yield signature(call, outputs, _lower_batch_norm_backward, 8 * shape[1], **inputs)
        else:
            yield signature(call, kept(mask, (split(dim), PARTIAL, PARTIAL)), **inputs)
    if shape[1] >= call.parts:
        yield signature(
            call, kept(mask, (split(1), split(0), split(0))), grad_out=split(1), input=split(1), **_vectors(call)
        )
    yield signature(call, kept(mask, (PARTIAL,) * 3), grad_out=PARTIAL)


def _vectors(call: Call) -> dict[str, Sbp]:
    """The tensors of one value per channel, split; saved statistics are empty in evaluation mode, and then not."""
    names = ("weight", "running_mean", "running_var", "save_mean", "save_invstd")
    return {name: split(0) for name in names if call.arg(name) is not None and shape_of(call, name)[0]}


def _lower_batch_norm(local: Local, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value:
    """One reduction of two sums per channel."""
    named = arguments(call, args, kwargs)
    count = prod(call.shapes[0]) // call.shapes[0][1]
    sums = local.reduce(local.call(batch_statistics.sums_of_part, named["input"]))
    mean_and_variance = local.call(batch_statistics.from_sums, sums, count, named["input"])
    moving = named["running_mean"], named["running_var"], named["momentum"]
    parameters = named["weight"], named["bias"]
    return local.call(
        batch_statistics.normalise, named["input"], *parameters, mean_and_variance, count, *moving, named["eps"]
    )


def _lower_batch_norm_backward(local: Local, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value:
    """One reduction of two sums per channel."""
    named = arguments(call, args, kwargs)
    saved = named["save_mean"], named["save_invstd"]
    sums = local.reduce(local.call(batch_statistics.gradient_sums, named["grad_out"], named["input"], *saved))
    count = prod(call.shapes[0]) // call.shapes[0][1]
    operands = named["grad_out"], named["input"], named["weight"], *saved
    return local.call(batch_statistics.gradients, *operands, sums, count, named["output_mask"])
