"""Emitters of ``oneflow.engine.ops.create``."""

from __future__ import annotations

from typing import Any

import torch

from oneflow.engine.onnx.builder import Builder, Operand, Wire
from oneflow.engine.onnx.family import Emitters
from oneflow.engine.ops import create

EMITTERS = Emitters()


def _filled(b: Builder, shape: Wire, value: float, dtype: torch.dtype) -> Wire:
    return b.node("ConstantOfShape", shape, dtype=dtype, value=torch.tensor([value], dtype=dtype))


@EMITTERS.row("constant")
def constant(b: Builder, *, value: float, shape: tuple[int, ...], dtype: torch.dtype) -> Wire:
    return _filled(b, b.ints(shape), value, dtype)


@EMITTERS.row("constant_like")
def constant_like(b: Builder, like: Operand, value: float, dtype: torch.dtype) -> Wire:
    return _filled(b, b.shape(like), value, dtype)


@EMITTERS.row("range")
def range_(b: Builder, **attributes: Any) -> Wire:
    """The numbers themselves: runtimes add up the steps of ONNX's Range and their rounding with them."""
    return b.constant(create.range_.compute(**attributes, device="cpu"))
