"""Convolutions of any rank, plain and transposed.

The weight of a plain convolution has dims (out, in / groups, ...), of a transposed one (in, out / groups, ...). Spatial
dims are never split: neighbours would have to exchange borders.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from oneflow.engine.core.region import span
from oneflow.engine.core.sbp import BROADCAST, PARTIAL, split
from oneflow.engine.sharding.call import Call, Shape
from oneflow.engine.sharding.rules.named import kept, replaced, signature
from oneflow.engine.sharding.rules.rule import Local, Rules, Signature

aten = torch.ops.aten

RULES = Rules()

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def _localise(local: Local, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """A rank has as many groups as its weight has."""
    return replaced(call, args, kwargs, groups=_groups(call, local.input_shape(0), local.input_shape(1), local.shape()))


@RULES.rule(aten.convolution.default, localise=_localise)
def convolution(call: Call) -> Iterator[Signature]:
    """The batch, the output channels, the input channels (a sum is over them), or whole groups can be split; linear in
    x and weight, the bias being added once."""
    x, w = call.shapes[:2]
    out_dim, in_dim = _weight_dims(call)
    if x[0] >= call.parts:
        yield signature(call, (split(0),), input=split(0))
    if call.arg("groups") == 1 and call.out[1] >= call.parts:
        yield signature(call, (split(1),), weight=split(out_dim), bias=split(0))
    if call.arg("groups") == 1 and x[1] >= call.parts:
        yield signature(call, (PARTIAL,), input=split(1), weight=split(in_dim), bias=PARTIAL)
    if groups_align(call.arg("groups"), (x[1], call.out[1]), call.parts):
        yield signature(call, (split(1),), input=split(1), weight=split(0), bias=split(0))
    yield signature(call, (PARTIAL,), input=PARTIAL, bias=PARTIAL)
    yield signature(call, (PARTIAL,), weight=PARTIAL, bias=PARTIAL)


def _localise_backward(local: Local, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """The groups and the size of the bias are a rank's."""
    gradient, x, w = (local.input_shape(i) for i in range(3))
    sizes = None if call.arg("bias_sizes") is None else [gradient[1]]
    return replaced(call, args, kwargs, bias_sizes=sizes, groups=_groups(call, x, w, gradient))


@RULES.rule(aten.convolution_backward.default, localise=_localise_backward)
def convolution_backward(call: Call) -> Iterator[Signature]:
    """The gradients of x, weight and bias follow the split that the forward op had; what each rank would add to an
    input that is whole there is a partial sum. Linear in the gradient."""
    gradient, x = call.shapes[:2]
    mask, groups = call.arg("output_mask"), call.arg("groups")
    out_dim, in_dim = _weight_dims(call)
    if x[0] >= call.parts:
        yield signature(call, kept(mask, (split(0), PARTIAL, PARTIAL)), grad_output=split(0), input=split(0))
    if groups == 1 and gradient[1] >= call.parts:
        yield signature(
            call, kept(mask, (PARTIAL, split(out_dim), split(0))), grad_output=split(1), weight=split(out_dim)
        )
    if groups == 1 and x[1] >= call.parts:
        yield signature(call, kept(mask, (split(1), split(in_dim), BROADCAST)), input=split(1), weight=split(in_dim))
    if groups_align(groups, (x[1], gradient[1]), call.parts):
        outputs = kept(mask, (split(1), split(0), split(0)))
        yield signature(call, outputs, grad_output=split(1), input=split(1), weight=split(0))
    yield signature(call, kept(mask, (PARTIAL, PARTIAL, PARTIAL)), grad_output=PARTIAL)


def _weight_dims(call: Call) -> tuple[int, int]:
    """Which dim of the weight holds output channels, and which input channels."""
    return (1, 0) if call.arg("transposed") else (0, 1)


def _groups(call: Call, x: Shape, w: Shape, out: Shape) -> int:
    """The second dim of a weight is the channels of one group: outputs of a transposed convolution, else inputs."""
    groups, rest = divmod((out if call.arg("transposed") else x)[1], w[1])
    assert groups and not rest, f"a split of the channels of {call.op} cuts through a group"
    return groups


def groups_align(groups: int, channels: tuple[int, ...], parts: int) -> bool:
    """Whether splitting groups of channels over ``parts`` ranks splits each of these numbers of channels in the same
    places."""
    if groups < max(parts, 2):
        return False
    spans = [span(groups, parts, i) for i in range(parts)]
    return all(
        span(size, parts, i) == (first * size // groups, last * size // groups)
        for size in channels
        for i, (first, last) in enumerate(spans)
    )
