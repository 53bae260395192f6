"""Ops of prediction with what follows them as one: convolutions and linear layers with bias, the sum with a residual
and an activation; pools, means.

Each function here is the aten ops that it stands for, on filters as they are. ``native_sequence.py`` runs several of
them by one call of the C extension, on filters that ``packed_filters``, ``packed_taps`` and ``winograd_filters`` have
laid out once; where it is not built these give filters as they are. Both agree but for rounding, and a NaN stays one.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import torch
from torch import Tensor

from oneflow.engine.ops import native

aten = torch.ops.aten
PANEL = 32
"""Columns of packed filters that lie side by side."""
TAPS = ((3, 1), (3, 2), (5, 1), (5, 2), (7, 1))
"""Widths and strides of the depthwise filters that the extension knows."""

Activation = tuple[str, float, float]
"""Its name, and the limits of "clip"."""

ACTIVATIONS = ("none", "clip", "hardswish", "hardsigmoid", "silu", "sigmoid", "gelu", "gelu_tanh")
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
    panels = torch.empty(packed_size(columns, depth))
    native.conv.pack(rows.data_ptr(), columns, depth, panels.data_ptr())
    return panels


def packed_size(columns: int, depth: int) -> int:
    """How many numbers packed filters have."""
    return -(-columns // PANEL) * PANEL * depth


def packed_taps(weight: Tensor) -> Tensor:
    """The filters of a depthwise convolution, a row of channels for each tap: two dims."""
    return weight if native.conv is None else weight.view(weight.shape[0], -1).t().contiguous()


def winograd_filters(weight: Tensor) -> Tensor:
    """The 3 x 3 filters of a convolution as its Winograd form multiplies by them: one dim."""
    if native.conv is None:
        return weight
    columns, depth = weight.shape[:2]
    filters = torch.empty(native.conv.prepared_size(depth, columns))
    native.conv.prepare(weight.data_ptr(), filters.data_ptr(), columns, depth, *weight.stride())
    return filters


def filled_bias(bias: Tensor) -> Tensor:
    """A bias with a number for each column of the panels."""
    return bias if native.conv is None else torch.nn.functional.pad(bias, (0, -len(bias) % PANEL))


# ------------------------------------------------------------------ ops


def convolution(
    images: Tensor,
    filters: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    geometry: tuple[int, ...],
    made: tuple[int, int, int],
    activation: Activation,
) -> Tensor:
    """activation(convolution of images + bias + residual). ``geometry``: height and width of filters, strides, zeros
    above and left, dilations; ``made``: channels, height and width of the result, which say how many zeros there are
    below and right."""
    return _finished(_convolution(images, filters, bias, geometry, made, 1), residual, activation)


def winograd(
    images: Tensor,
    filters: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    before: tuple[int, int],
    made: tuple[int, int, int],
    activation: Activation,
) -> Tensor:
    """``convolution`` with 3 x 3 filters at stride 1, of multiples of 16 channels, in fewer multiplications. There is
    no activation, or "clip"."""
    return _finished(_convolution(images, filters, bias, (3, 3, 1, 1, *before, 1, 1), made, 1), residual, activation)


def depthwise(
    images: Tensor,
    filters: Tensor,
    bias: Tensor | None,
    geometry: tuple[int, ...],
    made: tuple[int, int, int],
    activation: Activation,
) -> Tensor:
    """``convolution`` of each channel with a filter of its own, without dilation."""
    return _finished(_convolution(images, filters, bias, (*geometry, 1, 1), made, images.shape[1]), None, activation)


def linear(
    rows: Tensor, filters: Tensor, bias: Tensor | None, residual: Tensor | None, columns: int, activation: Activation
) -> Tensor:
    """activation(rows x filters' + bias + residual), of a matrix of rows; ``residual`` may have any shape of as many
    numbers. ``columns`` the filters have."""
    made = aten.mm(rows, filters.t()) if bias is None else aten.addmm(bias, rows, filters.t())
    return _finished(made, None if residual is None else residual.reshape(made.shape), activation)


def mean(images: Tensor, keepdim: bool) -> Tensor:
    """The mean of every channel of a picture."""
    return aten.mean(images, [2, 3], keepdim)


def scale(images: Tensor, factors: Tensor) -> Tensor:
    """Every channel of a picture times a factor of its own, of shape (pictures, channels, 1, 1)."""
    return aten.mul(images, factors)


def max_pool(images: Tensor, geometry: tuple[int, ...], made: tuple[int, int]) -> Tensor:
    """The greatest numbers of windows. ``geometry``: height and width, strides, padding above and left; ``made``:
    height and width of the result."""
    across, stride, before = (geometry[i : i + 2] for i in (0, 2, 4))
    below, right = ((made[i] - 1) * stride[i] + across[i] - images.shape[2 + i] - before[i] for i in range(2))
    return aten.max_pool2d(aten.constant_pad_nd(images, [before[1], right, before[0], below], -inf), across, stride)


def flat(images: Tensor) -> Tensor:
    """Pictures of one pixel as rows."""
    return images.flatten(1)


def _convolution(
    images: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    geometry: tuple[int, ...],
    made: tuple[int, int, int],
    groups: int,
) -> Tensor:
    across, stride, before, apart = (geometry[i : i + 2] for i in (0, 2, 4, 6))
    below, right = (
        (made[1 + i] - 1) * stride[i] + (across[i] - 1) * apart[i] + 1 - images.shape[2 + i] - before[i]
        for i in range(2)
    )
    padded = aten.constant_pad_nd(images, [before[1], right, before[0], below])
    return aten.convolution(padded, weight, bias, stride, [0, 0], apart, False, [0, 0], groups)


def _finished(made: Tensor, residual: Tensor | None, activation: Activation) -> Tensor:
    total = made if residual is None else made + residual
    name, low, high = activation
    if name != "clip":
        return _BY_ATEN[name](total)
    return aten.relu(total) if (low, high) == (0.0, inf) else aten.hardtanh(total, low, high)
