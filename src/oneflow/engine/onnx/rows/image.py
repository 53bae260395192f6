"""Emitters of ``oneflow.engine.ops.image``."""

from __future__ import annotations

import torch

from oneflow.engine.onnx.builder import Builder, Operand, Wire
from oneflow.engine.onnx.family import Emitters

EMITTERS = Emitters()


@EMITTERS.row("image.crop_normalize")
def crop_normalize(
    b: Builder,
    x: Operand,
    *,
    size: tuple[int, int],
    position: tuple[float, float],
    mean: tuple[float, ...],
    std: tuple[float, ...],
    channels: int,
    layout: str,
) -> Wire:
    part: Wire = x
    for dim, wanted, where in zip((1, 2), size, position):
        start = int((x.size(dim) - wanted) * where)
        part = b.slice(part, dim, start, start + wanted)
    centred = b.node("Sub", b.cast(part, torch.float32), b.constant(torch.tensor(mean, dtype=torch.float32)))
    result = b.node("Div", centred, b.constant(torch.tensor(std, dtype=torch.float32)))
    return b.transpose(result, (0, 3, 1, 2)) if layout == "CHW" else result


@EMITTERS.row("image.mirror")
def mirror(b: Builder, x: Operand, which: Operand, *, dim: int) -> Wire:
    chosen = b.reshape(b.truth(which), [-1] + [1] * (x.rank - 1))
    return b.where(chosen, b.reverse(x, [dim]), x)
