"""Ops that make tensors out of numbers and shapes. Each rank makes its own part; zeros are also partial sums."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch

from oneflow.engine.core.sbp import BROADCAST, PARTIAL, Sbp, split
from oneflow.engine.sharding.call import Call
from oneflow.engine.sharding.rules.patterns import (
    Args,
    Kwargs,
    all_partial,
    dim_pairs,
    float_outputs,
    local_size,
    pointwise_splits,
)
from oneflow.engine.sharding.rules.rule import Local, Rules, Signature, Value, dims_of, is_float

aten = torch.ops.aten
RULES = Rules()


@RULES.rule(
    aten.full.default, aten.zeros.default, aten.ones.default, aten.empty.memory_format, localise=local_size("size")
)
def made(call: Call) -> Iterator[Signature]:
    for layout in _free_layouts(call):
        yield Signature((), (layout,))


RULES.rule(aten.scalar_tensor.default)(made)


def _free_layouts(call: Call) -> list[Sbp]:
    """The layouts of an output that is made anew, apart from B."""
    zeros = [PARTIAL] if _makes_zeros(call) and float_outputs(call) else []
    return [*map(split, dims_of(call.out, call.parts)), *zeros]


_ZEROS = {aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default}
_VALUES = {
    aten.full.default: "fill_value",
    aten.full_like.default: "fill_value",
    aten.new_full.default: "fill_value",
    aten.fill.Scalar: "value",
    aten.scalar_tensor.default: "s",
}


def _makes_zeros(call: Call) -> bool:
    return call.op in _ZEROS or (call.op in _VALUES and call.arg(_VALUES[call.op]) == 0)


@RULES.rule(
    aten.new_zeros.default,
    aten.new_ones.default,
    aten.new_full.default,
    aten.new_empty.default,
    localise=local_size("size"),
)
def made_beside(call: Call) -> Iterator[Signature]:
    """Only the dtype of the input is read, so it may lie in any way."""
    free = [*map(split, dims_of(call.shapes[0], call.parts)), *([PARTIAL] if is_float(call.inputs[0]) else [])]
    for layout, out in product([BROADCAST, *free], [BROADCAST, *_free_layouts(call)]):
        if (layout, out) != (BROADCAST, BROADCAST):
            yield Signature((layout,), (out,))


@RULES.rule(
    aten.full_like.default, aten.zeros_like.default, aten.ones_like.default, aten.empty_like.default, aten.fill.Scalar
)
def made_alike(call: Call) -> Iterator[Signature]:
    """Only the shape of the input is read: what is made beside partial sums is whole."""
    yield from pointwise_splits(call)
    partial = is_float(call.inputs[0])
    if partial:
        yield Signature((PARTIAL,), (BROADCAST,))
    if _makes_zeros(call) and float_outputs(call):
        yield Signature((BROADCAST,), (PARTIAL,))
        if partial:
            yield Signature((PARTIAL,), (PARTIAL,))


@RULES.rule(aten.arange.default, aten.arange.start, aten.arange.start_step)
def counted(call: Call) -> Iterator[Signature]:
    whole_steps = all(isinstance(number, int) for number in _progression(call))
    if call.out[0] >= call.parts and (whole_steps or float_outputs(call)):
        yield Signature((), (split(0),), counted_part)


def counted_part(local: Local, call: Call, args: Args, kwargs: Kwargs) -> Value:
    """The count from this rank's first number. Of fractions it ends half a step early: rounding must not add a
    number."""
    start, _, step = _progression(call)
    first, count = local.start()[0], local.shape()[0]
    whole_steps = isinstance(start, int) and isinstance(step, int)
    begin, end = start + step * first, start + step * (first + count) - (0 if whole_steps else 0.5 * step)
    return local.call(aten.arange.start_step, begin, end, step, **{**kwargs, "dtype": call.dtype})


def _progression(call: Call) -> tuple[Any, Any, Any]:
    start = 0 if call.op is aten.arange.default else call.arg("start")
    return start, call.arg("end"), call.arg("step") if call.op is aten.arange.start_step else 1


@RULES.rule(aten.tril.default, aten.triu.default)
def triangle(call: Call) -> Iterator[Signature]:
    yield from all_partial(call)
    leading = range(len(call.out) - 2)
    yield from dim_pairs(call, zip(leading, leading))
