"""Emitters of aten's convolutions and pools. Both have the channels at dim 1, as ONNX has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from oneflow.engine.core.errors import UnsupportedError
from oneflow.engine.onnx.aten.builder import AtenBuilder
from oneflow.engine.onnx.aten.family import AtenEmitters, pair
from oneflow.engine.onnx.builder import Operand, Wire

EMITTERS = AtenEmitters()


@EMITTERS.row("convolution.default", "convolution_overrideable.default", "_convolution.default")
def convolution(
    b: AtenBuilder,
    x: Operand,
    weight: Operand,
    bias: Operand | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    *_: Any,
) -> Wire:
    dims = x.rank - 2
    attributes: dict[str, Any] = {
        "kernel_shape": weight.sizes(range(2, x.rank)),
        "strides": pair(stride, dims),
        "pads": pair(padding, dims) * 2,
        "dilations": pair(dilation, dims),
        "group": groups,
    }
    inputs = [x, weight] if bias is None else [x, weight, bias]
    if transposed:
        return b.node("ConvTranspose", *inputs, output_padding=pair(output_padding, dims), **attributes)
    return b.node("Conv", *inputs, **attributes)


@dataclass(frozen=True)
class Window:
    """Where a pool looks: all lists have a number for each spatial dim. ``extra`` is what the last window reaches
    beyond the padding."""

    kernel: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    extra: list[int]

    def pads(self) -> list[int]:
        return [*self.padding, *(p + e for p, e in zip(self.padding, self.extra))]


def _window(x: Operand, out: Operand, dims: int, kernel: Any, stride: Any, padding: Any, dilation: Any = 1) -> Window:
    """From the result's size, so that rounding up needs no rule of its own."""
    kernels = pair(kernel, dims)
    strides = pair(stride, dims) if stride else kernels
    paddings, dilations = pair(padding, dims), pair(dilation, dims)
    extra = []
    for i in range(dims):
        n, count = x.size(x.rank - dims + i), out.size(out.rank - dims + i)
        reached = (count - 1) * strides[i] + dilations[i] * (kernels[i] - 1) + 1
        extra.append(max(0, reached - n - 2 * paddings[i]))
    return Window(kernels, strides, paddings, dilations, extra)


def _batched(b: AtenBuilder, x: Operand, dims: int) -> tuple[Wire, bool]:
    """x with a batch, and whether it had none."""
    return (x, False) if x.rank == dims + 2 else (b.unsqueeze(x, 0), True)


def _max_pool(dims: int) -> None:
    def emit(
        b: AtenBuilder,
        x: Operand,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> list[Wire | None]:
        window = _window(x, b.result, dims, kernel_size, stride, padding, dilation)
        source, is_alone = _batched(b, x, dims)
        attributes: dict[str, Any] = {
            "kernel_shape": window.kernel,
            "strides": window.stride,
            "pads": window.pads(),
            "dilations": window.dilation,
        }
        if b.wanted <= {0}:
            values = b.node("MaxPool", source, **attributes)
            return [b.squeeze(values, 0) if is_alone else values, None]
        values, places = b.many("MaxPool", [source], [x.dtype, torch.int64], attributes)
        # ONNX counts places through the whole tensor, torch within each picture.
        places = b.node("Mod", places, prod(x.sizes(range(x.rank - dims, x.rank))))
        return [b.squeeze(values, 0), b.squeeze(places, 0)] if is_alone else [values, places]

    EMITTERS.add(f"max_pool{dims}d_with_indices.default", emit)


def _avg_pool(dims: int) -> None:
    def emit(
        b: AtenBuilder,
        x: Operand,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Wire:
        window = _window(x, b.result, dims, kernel_size, stride, padding)
        source, is_alone = _batched(b, x, dims)
        counts_pads = count_include_pad or divisor_override is not None
        made = (
            _mean_with_pads(b, source, dims, window, divisor_override)
            if counts_pads
            else _mean(b, source, window, window.pads())
        )
        return b.squeeze(made, 0) if is_alone else made

    EMITTERS.add(f"avg_pool{dims}d.default", emit)


def _mean(b: AtenBuilder, x: Wire, window: Window, pads: list[int]) -> Wire:
    """The mean of what lies inside of x."""
    return b.node("AveragePool", x, kernel_shape=window.kernel, strides=window.stride, pads=pads, count_include_pad=0)


def _mean_with_pads(b: AtenBuilder, x: Wire, dims: int, window: Window, divisor: int | None) -> Wire:
    """The padding counts, but not what the last window reaches beyond it, unless the divisor is given."""
    inside = window.pads() if divisor else window.padding * 2
    beyond = [0] * 2 * dims if divisor else [0] * dims + window.extra
    wide = (
        b.node("Pad", x, b.ints([0, 0, *inside[:dims], 0, 0, *inside[dims:]]), 0, mode="constant") if any(inside) else x
    )
    mean = _mean(b, wide, window, beyond)
    return mean if divisor is None else b.node("Mul", mean, prod(window.kernel) / divisor)


for _dims in (2, 3):
    _max_pool(_dims)
    _avg_pool(_dims)
_avg_pool(1)


def _bins(size: int, count: int) -> list[tuple[int, int]]:
    """The parts of a dim that torch's adaptive pools look at."""
    return [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


def _averages(size: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """The matrix of shape (size, count) that takes the mean of each part."""
    matrix = torch.zeros(size, count, dtype=dtype)
    for i, (start, end) in enumerate(_bins(size, count)):
        matrix[start:end, i] = 1 / (end - start)
    return matrix


def _adaptive_mean(dims: int) -> None:
    def emit(b: AtenBuilder, x: Operand, output_size: Any) -> Wire:
        """One product for each spatial dim, which stands last for it."""
        made: Wire = x
        for dim in range(x.rank - dims, x.rank):
            swapped = list(range(x.rank))
            swapped[dim], swapped[-1] = swapped[-1], swapped[dim]
            means = b.constant(_averages(x.size(dim), b.result.size(dim), x.dtype))
            made = b.transpose(b.node("MatMul", b.transpose(made, swapped), means), swapped)
        return made

    EMITTERS.add(f"_adaptive_avg_pool{dims}d.default", emit)


def _adaptive_max(dims: int) -> None:
    def emit(b: AtenBuilder, x: Operand, output_size: Any) -> list[Wire | None]:
        sizes, counts = x.sizes(range(x.rank - dims, x.rank)), b.result.sizes(range(x.rank - dims, x.rank))
        if any(n % count for n, count in zip(sizes, counts)) or not b.wanted <= {0}:
            raise UnsupportedError(
                f"parts of different size, or their places: from {sizes} to {counts}; use an output size that divides"
            )
        source, is_alone = _batched(b, x, dims)
        kernel = [n // count for n, count in zip(sizes, counts)]
        made = b.node("MaxPool", source, kernel_shape=kernel, strides=kernel)
        return [b.squeeze(made, 0) if is_alone else made, None]

    EMITTERS.add(f"adaptive_max_pool{dims}d.default", emit)


for _dims in (2, 3):
    _adaptive_mean(_dims)
    _adaptive_max(_dims)
