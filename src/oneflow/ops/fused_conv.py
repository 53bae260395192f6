"""Convolutions and linear layers of prediction with what follows them as one: bias, the sum with a residual, an activation.

Each keeps the aten ops that it stands for. Filters that were packed, by ``packed_filters`` or ``packed_taps``, are multiplied by the C extension; where it is not
built they come back as they are, and aten computes. Both agree but for rounding, and a NaN stays one.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import torch
from torch import Tensor

from oneflow.ops import native

aten = torch.ops.aten
_LAST = torch.channels_last
PANEL = 32
"""Columns of packed filters that lie side by side."""
TAPS = ((3, 1), (3, 2), (5, 1), (5, 2), (7, 1))
"""Widths and strides of the depthwise filters that the extension knows."""

Activation = tuple[str, float, float]
"""Its name, and the limits of "clip"."""

_NAMES = ("none", "clip", "hardswish", "hardsigmoid", "silu", "sigmoid", "gelu", "gelu_tanh")
_NUMBERS = {name: number for number, name in enumerate(_NAMES)}
_BY_ATEN: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "hardswish": aten.hardswish,
    "hardsigmoid": aten.hardsigmoid,
    "silu": aten.silu,
    "sigmoid": aten.sigmoid,
    "gelu": aten.gelu,
    "gelu_tanh": lambda x: aten.gelu(x, approximate="tanh"),
}


# ------------------------------------------------------------------ filters


def packed_filters(weight: Tensor) -> Tensor:
    """The filters of a convolution, or the weight of a linear layer, in the panels of the extension: one dim."""
    if native.conv is None:
        return weight
    rows = weight.permute(0, 2, 3, 1) if weight.dim() == 4 else weight
    rows = rows.contiguous().view(weight.shape[0], -1)
    columns, depth = rows.shape
    panels = torch.empty(-(-columns // PANEL) * PANEL * depth)
    native.conv.pack(rows.data_ptr(), columns, depth, panels.data_ptr())
    return panels


def packed_taps(weight: Tensor) -> Tensor:
    """The filters of a depthwise convolution, a row of channels for each tap: two dims."""
    return weight if native.conv is None else weight.view(weight.shape[0], -1).t().contiguous()


def winograd_filters(weight: Tensor) -> Tensor:
    """The 3 x 3 filters of a convolution as its Winograd form multiplies by them: one dim."""
    if native.winograd is None:
        return weight
    columns, depth = weight.shape[:2]
    filters = torch.empty(native.winograd.prepared_size(depth, columns))
    native.winograd.prepare(weight.data_ptr(), filters.data_ptr(), columns, depth, *weight.stride())
    return filters


def filled_bias(bias: Tensor) -> Tensor:
    """A bias with a number for each column of the panels."""
    return bias if native.conv is None else torch.nn.functional.pad(bias, (0, -len(bias) % PANEL))


# ------------------------------------------------------------------ ops


def convolution(
    images: Tensor, filters: Tensor, bias: Tensor | None, residual: Tensor | None, geometry: tuple[int, ...], made: tuple[int, int, int], activation: Activation
) -> Tensor:
    """activation(convolution of images + bias + residual). ``geometry``: height and width of filters, strides, zeros above and left, dilations; ``made``: channels,
    height and width of the result, which say how many zeros there are below and right."""
    if filters.dim() != 1:
        return _finished(_convolution_by_aten(images, filters, bias, geometry, made, 1), residual, activation)
    images, residual = _lying(images, residual)
    pictures, channels, height, width = images.shape
    output = torch.empty((pictures, *made), memory_format=_LAST)
    _require(filters.numel() == -(-made[0] // PANEL) * PANEL * geometry[0] * geometry[1] * channels, images, residual, output)
    name, low, high = activation
    native.conv.convolution(  # type: ignore[union-attr]
        images.data_ptr(), filters.data_ptr(), 0 if bias is None else bias.data_ptr(), 0 if residual is None else residual.data_ptr(), output.data_ptr(),
        pictures, height, width, channels, *made, *geometry, _NUMBERS[name], torch.get_num_threads(), low, high,
    )  # fmt: skip
    return output


def winograd(
    images: Tensor, filters: Tensor, bias: Tensor | None, residual: Tensor | None, before: tuple[int, int], made: tuple[int, int, int], activation: Activation
) -> Tensor:
    """``convolution`` with 3 x 3 filters at stride 1, of multiples of 16 channels, in fewer multiplications. There is no activation, or "clip"."""
    if filters.dim() != 1:
        return _finished(_convolution_by_aten(images, filters, bias, (3, 3, 1, 1, *before, 1, 1), made, 1), residual, activation)
    images, residual = _lying(images, residual)
    pictures, channels, height, width = images.shape
    output = torch.empty((pictures, *made), memory_format=_LAST)
    _require(filters.numel() == native.winograd.prepared_size(channels, made[0]), images, residual, output)  # type: ignore[union-attr]
    _, low, high = activation if activation[0] == "clip" else ("none", -inf, inf)
    native.winograd.predict(  # type: ignore[union-attr]
        images.data_ptr(), filters.data_ptr(), 0 if bias is None else bias.data_ptr(), 0 if residual is None else residual.data_ptr(), output.data_ptr(),
        pictures, height, width, channels, *made, *before, torch.get_num_threads(), low, high,
    )  # fmt: skip
    return output


def depthwise(images: Tensor, filters: Tensor, bias: Tensor | None, geometry: tuple[int, ...], made: tuple[int, int, int], activation: Activation) -> Tensor:
    """``convolution`` of each channel with a filter of its own, without dilation."""
    if filters.dim() != 2:
        return _finished(_convolution_by_aten(images, filters, bias, (*geometry, 1, 1), made, images.shape[1]), None, activation)
    images, _ = _lying(images, None)
    pictures, channels, height, width = images.shape
    output = torch.empty((pictures, *made), memory_format=_LAST)
    _require(channels == made[0] == filters.shape[1], images, None, output)
    name, low, high = activation
    native.conv.depthwise(  # type: ignore[union-attr]
        images.data_ptr(), filters.data_ptr(), 0 if bias is None else bias.data_ptr(), output.data_ptr(),
        pictures, height, width, channels, *made[1:], *geometry, _NUMBERS[name], torch.get_num_threads(), low, high,
    )  # fmt: skip
    return output


def linear(rows: Tensor, filters: Tensor, bias: Tensor | None, residual: Tensor | None, columns: int, activation: Activation) -> Tensor:
    """activation(rows x filters' + bias + residual), of a matrix of rows; ``residual`` may have any shape of as many numbers."""
    if filters.dim() != 1:
        made = aten.mm(rows, filters.t()) if bias is None else aten.addmm(bias, rows, filters.t())
        return _finished(made, None if residual is None else residual.reshape(made.shape), activation)
    rows = rows.contiguous()
    count, depth = rows.shape
    output = torch.empty((count, columns))
    if residual is not None:
        residual = residual.contiguous()
    _require(filters.numel() == -(-columns // PANEL) * PANEL * depth, rows, residual, output)
    name, low, high = activation
    native.conv.convolution(  # type: ignore[union-attr]
        rows.data_ptr(), filters.data_ptr(), 0 if bias is None else bias.data_ptr(), 0 if residual is None else residual.data_ptr(), output.data_ptr(),
        1, count, 1, depth, columns, count, 1, 1, 1, 1, 1, 0, 0, 1, 1, _NUMBERS[name], torch.get_num_threads(), low, high,
    )  # fmt: skip
    return output


def mean(images: Tensor, keepdim: bool) -> Tensor:
    """The mean of every channel of a picture."""
    if native.conv is None or not images.is_contiguous(memory_format=_LAST) or not images.numel():
        return aten.mean(images, [2, 3], keepdim)
    pictures, channels, height, width = images.shape
    output = torch.empty((pictures, channels, 1, 1) if keepdim else (pictures, channels))
    native.conv.mean(images.data_ptr(), output.data_ptr(), pictures, height * width, channels, torch.get_num_threads())
    return output


FRESH = (convolution, winograd, depthwise, linear, mean)
"""The functions here whose results are memory of their own, and that are done with their arguments when they return."""


def _lying(images: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Both in the memory order that the extension reads."""
    if not images.is_contiguous(memory_format=_LAST):
        images = images.contiguous(memory_format=_LAST)
    if residual is not None and not residual.is_contiguous(memory_format=_LAST):
        residual = residual.contiguous(memory_format=_LAST)
    return images, residual


def _require(fits: bool, given: Tensor, residual: Tensor | None, output: Tensor) -> None:
    """Refuses what a program was not compiled for: the extension would read memory that is not theirs."""
    if not fits or (residual is not None and residual.numel() != output.numel()):
        raise RuntimeError(f"the packed filters or the residual do not fit what is given, of shape {tuple(given.shape)}")


# ------------------------------------------------------------------ by aten


def _convolution_by_aten(images: Tensor, weight: Tensor, bias: Tensor | None, geometry: tuple[int, ...], made: tuple[int, int, int], groups: int) -> Tensor:
    across, stride, before, apart = (geometry[i : i + 2] for i in (0, 2, 4, 6))
    below, right = ((made[1 + i] - 1) * stride[i] + (across[i] - 1) * apart[i] + 1 - images.shape[2 + i] - before[i] for i in range(2))
    padded = aten.constant_pad_nd(images, [before[1], right, before[0], below])
    return aten.convolution(padded, weight, bias, stride, [0, 0], apart, False, [0, 0], groups)


def _finished(made: Tensor, residual: Tensor | None, activation: Activation) -> Tensor:
    total = made if residual is None else made + residual
    name, low, high = activation
    if name != "clip":
        return _BY_ATEN[name](total)
    return aten.relu(total) if (low, high) == (0.0, inf) else aten.hardtanh(total, low, high)
