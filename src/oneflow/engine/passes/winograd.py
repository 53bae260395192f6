"""Convolutions of 3 x 3 and 5 x 5 filters at stride 1 take fewer multiplications (Winograd), forward and backward.

oneDNN's direct convolutions reach what a processor can multiply, and they are most of the time of a residual network's
step; so what is left to save there is multiplications. ``ops/winograd.py`` keeps the aten ops, and computes them where
its C extension would not be faster.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from oneflow.engine.ir.nodes import argument
from oneflow.engine.ops import native  # noqa: F401 - the second registers the ops
from oneflow.engine.ops.cpu import winograd  # noqa: F401 - the second registers the ops
from oneflow.engine.program.notes import tensor

aten = torch.ops.aten
_FORWARD, _BACKWARD = (
    torch.ops.oneflow.winograd_convolution.default,
    torch.ops.oneflow.winograd_convolution_backward.default,
)

SIZES = ((3, 3), (5, 5))


def convolve_by_winograd(graph: fx.Graph) -> None:
    """Puts an op that multiplies less in the place of convolutions of 3 x 3 and 5 x 5 filters, and of their backward
    passes.

    Relies on the graph of a section. Leaves the same values but for rounding; where the C extension is not built, the
    graph as it was.
    """
    if native.winograd is None:
        return
    for node in graph.nodes:
        if node.target is aten.convolution.default:
            images, weight, bias, *numbers = (argument(node, place) for place in range(9))
            if _fits(numbers, weight, [images, node]):
                node.target, node.args, node.kwargs = _FORWARD, (images, weight, bias, numbers[1]), {}
        elif node.target is aten.convolution_backward.default:
            gradient, images, weight, bias_sizes, *numbers, wanted = (argument(node, place) for place in range(11))
            if _fits(numbers, weight, [images, gradient]):
                node.target, node.args, node.kwargs = (
                    _BACKWARD,
                    (gradient, images, weight, bias_sizes, numbers[1], wanted),
                    {},
                )


def _fits(numbers: list[Any], weight: fx.Node, pictures: list[fx.Node]) -> bool:
    """Whether a convolution is plain: no stride, no dilation, one group, filters of these sizes and fewer zeros at each
    border; pictures in channels_last memory."""
    stride, padding, dilation, transposed, _, groups = numbers
    filters = tensor(weight)
    if (
        transposed
        or groups != 1
        or filters is None
        or filters.dtype is not torch.float32
        or filters.device.type != "cpu"
        or tuple(filters.shape[2:]) not in SIZES
    ):
        return False
    plain = (
        all(list(one) in ([1], [1, 1]) for one in (stride, dilation))
        and len(padding) == 2
        and max(padding) < filters.shape[2]
    )
    return plain and all(_is_channels_last(one) for one in pictures)


def _is_channels_last(node: fx.Node) -> bool:
    value = tensor(node)
    return value is not None and value.dtype is torch.float32 and value.is_contiguous(memory_format=torch.channels_last)
