"""Emitters of aten's normalisations."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from oneflow.engine.core.errors import UnsupportedError
from oneflow.engine.onnx.aten.builder import AtenBuilder, Size
from oneflow.engine.onnx.aten.family import AtenEmitters, place
from oneflow.engine.onnx.builder import Operand, Wire

EMITTERS = AtenEmitters()


def _affine(b: AtenBuilder, y: Wire, weight: Wire | None, bias: Wire | None) -> Wire:
    y = y if weight is None else b.node("Mul", y, b.cast(weight, y.dtype))
    return y if bias is None else b.node("Add", y, b.cast(bias, y.dtype))


def _statistics(b: AtenBuilder, x: Wire, dims: Sequence[int], eps: float) -> tuple[Wire, Wire, Wire]:
    """(x - mean) * rstd, mean and rstd over these dims, which stay with size 1."""
    mean = b.reduce("ReduceMean", x, dims)
    centred = b.node("Sub", x, mean)
    variance = b.reduce("ReduceMean", b.node("Mul", centred, centred), dims)
    root = b.node("Sqrt", b.node("Add", variance, eps))
    return b.node("Div", centred, root), mean, b.node("Reciprocal", root)


@EMITTERS.row("native_layer_norm.default")
def layer_norm(
    b: AtenBuilder,
    x: Operand,
    normalized_shape: Sequence[int],
    weight: Operand | None,
    bias: Operand | None,
    eps: float,
) -> list[Wire | None]:
    first = x.rank - len(normalized_shape)
    if b.opset >= 17 and b.wanted <= {0}:
        scale = weight or b.constant(torch.ones(list(normalized_shape), dtype=x.dtype))
        parameters = [b.cast(scale, x.dtype)] + ([] if bias is None else [b.cast(bias, x.dtype)])
        return [b.node("LayerNormalization", x, *parameters, axis=first, epsilon=eps), None, None]
    y, mean, rstd = _statistics(b, x, range(first, x.rank), eps)
    return [
        _affine(b, y, weight, bias),
        *(b.cast(value, like.dtype) for value, like in zip((mean, rstd), b.results[1:])),
    ]


@EMITTERS.row("_fused_rms_norm.default")
def rms_norm(
    b: AtenBuilder, x: Operand, normalized_shape: Sequence[int], weight: Operand | None, eps: float | None
) -> list[Wire]:
    dims = range(x.rank - len(normalized_shape), x.rank)
    square = b.reduce("ReduceMean", b.node("Mul", x, x), dims)
    rstd = b.node("Reciprocal", b.node("Sqrt", b.node("Add", square, torch.finfo(x.dtype).eps if eps is None else eps)))
    return [_affine(b, b.node("Mul", x, rstd), weight, None), b.cast(rstd, b.results[1].dtype)]


@EMITTERS.row("native_group_norm.default", follows=["N"])
def group_norm(
    b: AtenBuilder,
    x: Operand,
    weight: Operand | None,
    bias: Operand | None,
    N: Size,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> list[Wire | None]:
    y, mean, rstd = _statistics(b, b.node("Reshape", x, b.vector([b.sizes_of(x)[0], group, -1])), [2], eps)
    parameters = [None if p is None else b.reshape(p, [-1] + [1] * (x.rank - 2)) for p in (weight, bias)]
    made = _affine(b, b.reshape_like(y, x), *parameters)
    return [made, *(b.cast(b.squeeze(value, 2), like.dtype) for value, like in zip((mean, rstd), b.results[1:]))]


@EMITTERS.row("native_batch_norm.default", "cudnn_batch_norm.default", "miopen_batch_norm.default")
def batch_norm(
    b: AtenBuilder,
    x: Operand,
    weight: Operand | None,
    bias: Operand | None,
    running_mean: Operand | None,
    running_var: Operand | None,
    training: bool,
    momentum: float,
    eps: float,
) -> list[Wire | None]:
    """With the running statistics; with those of the batch where there are no others, as instance norm has it."""
    if not training:
        assert running_mean is not None and running_var is not None
        return [_by_running(b, x, weight, bias, running_mean, running_var, eps), *[None] * (len(b.results) - 1)]
    if running_mean is not None:
        raise UnsupportedError(
            "it would update running statistics, which an ONNX model cannot write; call .eval() on the module"
        )
    y = _statistics(b, x, [d for d in range(x.rank) if d != 1], eps)[0]
    parameters = [None if p is None else b.reshape(p, [-1] + [1] * (x.rank - 2)) for p in (weight, bias)]
    return [_affine(b, y, *parameters), *[None] * (len(b.results) - 1)]


def _by_running(
    b: AtenBuilder, x: Operand, weight: Operand | None, bias: Operand | None, mean: Operand, var: Operand, eps: float
) -> Wire:
    scale = weight or b.constant(torch.ones(mean.shape, dtype=mean.dtype))
    offset = bias or b.constant(torch.zeros(mean.shape, dtype=mean.dtype))
    parameters: list[Wire] = [scale, offset, mean, var]
    if b.opset < 15:  # all inputs had one dtype then
        parameters = [b.cast(p, x.dtype) for p in parameters]
    return b.node("BatchNormalization", x, *parameters, epsilon=eps)


@EMITTERS.row("_native_batch_norm_legit_no_training.default", "_batch_norm_no_update.default")
def batch_norm_by_running(
    b: AtenBuilder,
    x: Operand,
    weight: Operand | None,
    bias: Operand | None,
    mean: Operand,
    var: Operand,
    momentum: float,
    eps: float,
) -> list[Wire | None]:
    return batch_norm(b, x, weight, bias, mean, var, False, momentum, eps)


@EMITTERS.row("_native_batch_norm_legit.no_stats")
def batch_norm_without_running(
    b: AtenBuilder,
    x: Operand,
    weight: Operand | None,
    bias: Operand | None,
    training: bool,
    momentum: float,
    eps: float,
) -> list[Wire | None]:
    return batch_norm(b, x, weight, bias, None, None, True, momentum, eps)


@EMITTERS.row("_weight_norm_interface.default")
def weight_norm(b: AtenBuilder, v: Operand, g: Operand, dim: int = 0) -> list[Wire]:
    norms = b.reduce("ReduceL2", v, [d for d in range(v.rank) if d != place(dim, v.rank)])
    return [b.node("Mul", v, b.node("Div", g, norms)), norms]


def _no_training(*names: str) -> None:
    EMITTERS.cannot(
        "it updates running statistics, which an ONNX model cannot write; call .eval() on the module", *names
    )


_no_training("_native_batch_norm_legit.default", "_batch_norm_with_update.default")
_no_training("_native_batch_norm_legit_functional.default", "_batch_norm_with_update_functional.default")
