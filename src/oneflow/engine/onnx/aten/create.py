"""Emitters of aten ops that make tensors out of numbers."""

from __future__ import annotations

from typing import Any

import torch

from oneflow.engine.core.errors import UnsupportedError
from oneflow.engine.onnx.aten.builder import AtenBuilder, Number, Size, Times
from oneflow.engine.onnx.aten.family import AtenEmitters
from oneflow.engine.onnx.builder import Operand, Wire

EMITTERS = AtenEmitters()


def _all(b: AtenBuilder, value: Number) -> Wire:
    return b.filled(value, b.result.dtype, b.sizes_of(b.result))


def _same(value: Number, *names: str) -> None:
    """Tensors of one value; the result's shape and dtype are those of the trace. What is not set yet is 0."""
    for name in names:
        EMITTERS.add(name, lambda b, *_, **__: _all(b, value), follows=["_"])


_same(0, "zeros.default", "zeros_like.default", "new_zeros.default", "zero.default")
_same(1, "ones.default", "ones_like.default", "new_ones.default")
_same(
    0,
    "empty.memory_format",
    "empty_like.default",
    "new_empty.default",
    "empty_strided.default",
    "new_empty_strided.default",
)


@EMITTERS.row("full.default", follows=["size"])
def full(b: AtenBuilder, size: Any, fill_value: Number, **_: Any) -> Wire:
    return _all(b, fill_value)


@EMITTERS.row("full_like.default")
def full_like(b: AtenBuilder, x: Operand, fill_value: Number, **_: Any) -> Wire:
    return _all(b, fill_value)


@EMITTERS.row("new_full.default", follows=["size"])
def new_full(b: AtenBuilder, x: Operand, size: Any, fill_value: Number, **_: Any) -> Wire:
    return _all(b, fill_value)


@EMITTERS.row("fill.Scalar", "fill.Tensor")
def fill(b: AtenBuilder, x: Operand, value: Operand | Number) -> Wire:
    return b.expand_like(b.typed(value, x.dtype), b.result)


@EMITTERS.row("scalar_tensor.default")
def scalar_tensor(b: AtenBuilder, value: Number, **_: Any) -> Wire:
    return b.wire(value, b.result.dtype)


@EMITTERS.row("arange.default", follows=["end"])
def arange(b: AtenBuilder, end: Size | float, **_: Any) -> Wire:
    return _range(b, 0, end, 1)


@EMITTERS.row("arange.start", follows=["start", "end"])
def arange_start(b: AtenBuilder, start: Size | float, end: Size | float, **_: Any) -> Wire:
    return _range(b, start, end, 1)


@EMITTERS.row("arange.start_step", follows=["start", "end", "step"])
def arange_step(b: AtenBuilder, start: Size | float, end: Size | float, step: Size | float = 1, **_: Any) -> Wire:
    return _range(b, start, end, step)


def _range(b: AtenBuilder, start: Size | float, end: Size | float, step: Size | float) -> Wire:
    dtype = b.result.dtype
    if isinstance(start, Times) or isinstance(end, Times) or isinstance(step, Times):
        return b.node("Range", *(b.scalar(number, dtype) for number in (start, end, step)), dtype=dtype)
    return b.constant(torch.arange(start, end, step, dtype=dtype))


@EMITTERS.row("linspace.default")
def linspace(b: AtenBuilder, start: float, end: float, steps: int, **_: Any) -> Wire:
    return b.constant(torch.linspace(start, end, steps, dtype=b.result.dtype))


@EMITTERS.row("eye.default", "eye.m")
def eye(b: AtenBuilder, *_: int, **__: Any) -> Wire:
    return b.constant(torch.eye(*b.result.sizes(), dtype=b.result.dtype))


def _triangle(name: str) -> None:
    find = getattr(torch, name)
    EMITTERS.add(
        f"{name}.default", lambda b, row, col, offset=0, **_: b.constant(find(row, col, offset, dtype=b.result.dtype))
    )


_triangle("tril_indices")
_triangle("triu_indices")

EMITTERS.cannot(
    "its random bits are a function of seed, step and index, which ONNX's random operators do not give; draw outside "
    "of the model and pass it in",
    "oneflow.random_bits.default",
)
EMITTERS.cannot(
    "its random bits are torch's, which ONNX's random operators do not give; draw outside of the model and pass it in",
    *(
        "rand.default",
        "rand_like.default",
        "randn.default",
        "randn_like.default",
        "randint.low",
        "randint.default",
        "randint_like.default",
    ),
    *(
        "randint_like.low_dtype",
        "randperm.default",
        "bernoulli.default",
        "bernoulli.p",
        "multinomial.default",
        "normal.Tensor_Tensor",
    ),
    *("normal_functional.default", "uniform.default", "exponential.default"),
)


@EMITTERS.row("native_dropout.default")
def native_dropout(b: AtenBuilder, x: Operand, p: float, train: bool | None) -> list[Wire]:
    if train is not False and p != 0:
        raise UnsupportedError("dropout is active; call .eval() on the module")
    return [x, b.filled(True, torch.bool, b.sizes_of(x))]
