"""Emitters of ``oneflow.engine.ops.structure``."""

from __future__ import annotations

from oneflow.engine.onnx.builder import Builder, Operand, Wire
from oneflow.engine.onnx.family import Emitters

EMITTERS = Emitters()


@EMITTERS.row("layout")
def layout(b: Builder, x: Operand, **_: object) -> Wire:
    """How a value lies over devices is no matter of a model on one."""
    return x


@EMITTERS.row("item")
def item(b: Builder, values: tuple[Operand, ...], index: int) -> Wire:
    return values[index]
