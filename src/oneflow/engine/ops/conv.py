"""Convolutions and the dense product, each with its bias in the same row, so that torch adds it in the same kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from oneflow.engine.ops import padding
from oneflow.engine.ops.elementwise import operands, require_float
from oneflow.engine.ops.padding import Pads
from oneflow.engine.ops.row import Family, Op, require

ROWS = Family()


def channels_first(x: Tensor, channels_last: bool) -> Tensor:
    """A view with the channels at dimension 1. Filters keep theirs where their input does, so the same view serves
    them."""
    return x.movedim(-1, 1) if channels_last else x


def channels_back(x: Tensor, channels_last: bool) -> Tensor:
    return x.movedim(1, -1) if channels_last else x


def _require_bias(bias: Tensor | None, like: Tensor, channels: int) -> None:
    if bias is not None:
        operands(like, bias)
        require(bias.shape == (channels,), f"the bias has shape {tuple(bias.shape)}, expected ({channels},)")


def _require_conv(x: Tensor, filters: Tensor, bias: Tensor | None, dims: int, groups: int) -> None:
    operands(require_float(x), filters)
    require(x.dim() == dims + 2, f"the input has rank {x.dim()}, expected {dims + 2}")
    require(filters.dim() == dims + 2, f"the filters have rank {filters.dim()}, expected {dims + 2}")
    require(
        groups > 0 and filters.shape[0] % groups == 0,
        f"{filters.shape[0]} filters cannot be divided into {groups} groups",
    )
    expected = filters.shape[1] * groups
    require(
        x.shape[1] == expected, f"the input has {x.shape[1]} channels, filters and groups={groups} expect {expected}"
    )
    _require_bias(bias, x, filters.shape[0])


def _convolution(dims: int, function: Callable[..., Tensor]) -> Op:
    def compute(
        x: Tensor,
        filters: Tensor,
        bias: Tensor | None = None,
        *,
        strides: tuple[int, ...],
        pads: Pads,
        dilations: tuple[int, ...],
        groups: int = 1,
        channels_last: bool = False,
    ) -> Tensor:
        x, filters = channels_first(x, channels_last), channels_first(filters, channels_last)
        _require_conv(x, filters, bias, dims, groups)
        sizes, kernels = x.shape[2:], [padding.extent(k, d) for k, d in zip(filters.shape[2:], dilations)]
        padding.require_windows(pads, sizes, kernels, strides)
        inner = padding.symmetric(pads, sizes, kernels, strides)
        if inner is None:
            x, inner = padding.pad(x, pads), (0,) * dims
        return channels_back(function(x, filters, bias, strides, inner, dilations, groups), channels_last)

    return ROWS.add(f"nn.conv{dims}d", compute, precision="white")


conv1d = _convolution(1, F.conv1d)
conv2d = _convolution(2, F.conv2d)
conv3d = _convolution(3, F.conv3d)


@ROWS.op("nn.conv2d_transpose", precision="white")
def conv2d_transpose(
    x: Tensor,
    filters: Tensor,
    *,
    output_size: tuple[int, int],
    strides: tuple[int, int],
    pads: Pads,
    dilations: tuple[int, int],
    channels_last: bool = False,
) -> Tensor:
    """The gradient of a convolution with these strides and pads that makes ``x`` from an input of ``output_size``."""
    x, filters = channels_first(x, channels_last), channels_first(filters, channels_last)
    operands(require_float(x), filters)
    require(
        x.shape[1] == filters.shape[0], f"the input has {x.shape[1]} channels, the filters expect {filters.shape[0]}"
    )
    kernels = [padding.extent(k, d) for k, d in zip(filters.shape[2:], dilations)]
    for n, size, k, s, (b, a) in zip(output_size, x.shape[2:], kernels, strides, pads):
        made = padding.count(n, k, s, b, a)
        require(made == size, f"an output dimension of {n} would come from an input of {made}, the input has {size}")
    # torch cuts the same from both sides, the rest of the longer side is cut here
    both = [min(pair) for pair in pads]
    beyond = [
        max(0, n + b + a - (size - 1) * s - k)
        for n, size, k, s, (b, a) in zip(output_size, x.shape[2:], kernels, strides, pads)
    ]
    y = F.conv_transpose2d(x, filters, None, strides, both, beyond, 1, dilations)
    for dim in (0, 1):
        y = y.narrow(dim + 2, pads[dim][0] - both[dim], output_size[dim])
    return channels_back(y, channels_last)


@ROWS.op("nn.dense", precision="white")
def dense(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x · weightᵀ + bias over the last dimension of x."""
    operands(require_float(x), weight)
    require(weight.dim() == 2, f"the weight has rank {weight.dim()}, expected 2: (units, features)")
    require(
        x.shape[-1] == weight.shape[1], f"the input has {x.shape[-1]} features, the weight expects {weight.shape[1]}"
    )
    _require_bias(bias, x, weight.shape[0])
    out = F.linear(x.reshape(-1, x.shape[-1]) if x.dim() > 2 else x, weight, bias)
    return out.reshape(*x.shape[:-1], weight.shape[0]) if x.dim() > 2 else out


@ROWS.op("nn.bias_add", precision="gray")
def bias_add(x: Tensor, bias: Tensor, *, dim: int) -> Tensor:
    """x + bias along dimension ``dim``. The bias follows x into half precision."""
    require(bias.dim() == 1, f"the bias has rank {bias.dim()}, expected 1")
    require(x.dim() > dim, f"the value has rank {x.dim()}, it has no dimension {dim}")
    require(
        x.shape[dim] == bias.shape[0],
        f"the bias has {bias.shape[0]} elements, dimension {dim} of the value has {x.shape[dim]}",
    )
    shape: list[Any] = [1] * x.dim()
    shape[dim] = -1
    return x + bias.to(x.dtype).reshape(shape)
