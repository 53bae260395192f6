"""Emitters of ``oneflow.engine.ops.conv``. ONNX has the channels at dim 1, and its filters too; other layouts are transposed
around the node.

A variable is never transposed or folded in the file: its initializer is the variable, under its name. Runtimes fold
such transposes when they load the model.
"""

from __future__ import annotations

from oneflow.engine.onnx.builder import Builder, Operand, Wire
from oneflow.engine.onnx.family import Emitters
from oneflow.engine.onnx.rows.matmul import last_two_swapped
from oneflow.engine.ops import padding
from oneflow.engine.ops.padding import Pads

EMITTERS = Emitters()


def channels_first(b: Builder, x: Operand, channels_last: bool) -> Wire:
    return b.transpose(x, [0, x.rank - 1, *range(1, x.rank - 1)]) if channels_last else x


def channels_back(b: Builder, x: Wire, rank: int, channels_last: bool) -> Wire:
    return b.transpose(x, [0, *range(2, rank), 1]) if channels_last else x


def spatial(x: Operand, channels_last: bool) -> list[int]:
    """The sizes of the dims that are neither batch nor channels."""
    return x.sizes(range(1, x.rank - 1) if channels_last else range(2, x.rank))


def flat_pads(pads: Pads) -> list[int]:
    """ONNX's order: what comes before each dim, then what comes after each."""
    return [before for before, _ in pads] + [after for _, after in pads]


def _convolution(
    b: Builder,
    x: Operand,
    filters: Operand,
    bias: Operand | None = None,
    *,
    strides: tuple[int, ...],
    pads: Pads,
    dilations: tuple[int, ...],
    groups: int = 1,
    channels_last: bool = False,
) -> Wire:
    inputs = [channels_first(b, operand, channels_last) for operand in (x, filters)]
    y = b.node(
        "Conv",
        *inputs,
        *([] if bias is None else [bias]),
        kernel_shape=spatial(filters, channels_last),
        strides=list(strides),
        pads=flat_pads(pads),
        dilations=list(dilations),
        group=groups,
    )
    return channels_back(b, y, x.rank, channels_last)


for _name in ("nn.conv1d", "nn.conv2d", "nn.conv3d"):
    EMITTERS.add(_name, _convolution)


@EMITTERS.row("nn.conv2d_transpose")
def conv2d_transpose(
    b: Builder,
    x: Operand,
    filters: Operand,
    *,
    output_size: tuple[int, int],
    strides: tuple[int, int],
    pads: Pads,
    dilations: tuple[int, int],
    channels_last: bool = False,
) -> Wire:
    """The part of the output that no window of the convolution reaches is ONNX's output_padding."""
    kernel_shape = spatial(filters, channels_last)
    reached = [
        (n - 1) * s + padding.extent(k, d)
        for n, s, k, d in zip(spatial(x, channels_last), strides, kernel_shape, dilations)
    ]
    y = b.node(
        "ConvTranspose",
        channels_first(b, x, channels_last),
        channels_first(b, filters, channels_last),
        kernel_shape=kernel_shape,
        strides=list(strides),
        pads=flat_pads(pads),
        dilations=list(dilations),
        output_padding=[n + before + after - r for n, (before, after), r in zip(output_size, pads, reached)],
    )
    return channels_back(b, y, x.rank, channels_last)


@EMITTERS.row("nn.dense")
def dense(b: Builder, x: Operand, weight: Operand, bias: Operand | None = None) -> Wire:
    if x.rank == 2:
        return b.node("Gemm", x, weight, *([] if bias is None else [bias]), transB=1)
    product = b.node("MatMul", x, last_two_swapped(b, weight))
    return product if bias is None else b.node("Add", product, bias)


@EMITTERS.row("nn.bias_add")
def bias_add(b: Builder, x: Operand, bias: Operand, *, dim: int) -> Wire:
    shape = [1] * (x.rank - dim)
    shape[0] = -1
    follows = b.cast(bias, x.dtype)
    return b.arithmetic("Add", x, follows if len(shape) == 1 else b.reshape(follows, shape))
