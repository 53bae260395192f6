"""Batch norm of training with the ops around it as one: the sum with a residual and relu behind it, or relu with a
ceiling (relu6); in the backward pass the sum of two gradients and the mask of relu before it.

Each is written here as the aten ops it stands for. Where the C extension is built, it computes float32 in channels_last
memory of the CPU in fewer passes over it, and agrees with the aten ops but for rounding.
"""

from __future__ import annotations

import torch
from torch import Tensor

from oneflow.engine.ops import native
from oneflow.engine.ops.dense_operands import stride_safe

aten = torch.ops.aten
_CHANNELS_LAST = torch.channels_last
FOR_A_THREAD = 2**16
"""So many numbers are worth a thread: a fraction of a millisecond. With fewer, threads would rather wait for each other
than compute."""


def _batch_norm(
    input: Tensor,
    residual: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    relu: bool,
    ceiling: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """relu(batch norm of input + residual) up to the ceiling, the mean and the inverse of the deviation; running
    statistics are updated."""
    vectors = [weight, bias, *(one for one in (running_mean, running_var) if one is not None)]
    if (
        native.library is None
        or input.numel() <= input.shape[1]
        or not _fit([input] if residual is None else [input, residual], vectors)
    ):
        return _batch_norm_by_aten(
            input, residual, weight, bias, running_mean, running_var, momentum, eps, relu, ceiling
        )
    output = torch.empty_like(input, memory_format=_CHANNELS_LAST)
    mean, invstd = torch.empty_like(weight), torch.empty_like(weight)
    tensors = (input, residual, weight, bias, output, mean, invstd, running_mean, running_var)
    channels = input.shape[1]
    native.library.batch_norm(
        *map(_address, tensors),
        input.numel() // channels,
        channels,
        momentum,
        eps,
        relu,
        _or_nan(ceiling),
        _threads(input),
    )
    return output, mean, invstd


def _batch_norm_by_aten(
    input: Tensor,
    residual: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    relu: bool,
    ceiling: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    made, mean, invstd = aten.native_batch_norm(input, weight, bias, running_mean, running_var, True, momentum, eps)
    if residual is not None:
        made = made.add_(residual)
    if relu:
        made = made.relu_() if ceiling is None else aten.hardtanh_(made, 0.0, ceiling)
    return made, mean, invstd


def _batch_norm_backward(
    gradient: Tensor,
    other: Tensor | None,
    activation: Tensor | None,
    input: Tensor,
    weight: Tensor,
    mean: Tensor,
    invstd: Tensor,
    eps: float,
    keeps_masked: bool,
    ceiling: float | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of input, weight and bias for ``gradient`` + ``other`` where ``activation`` is above 0 and below
    the ceiling; and that, if it is kept."""
    tensors = [one for one in (gradient, other, activation, input) if one is not None]
    if native.library is None or not input.numel() or not _fit(tensors, [weight, mean, invstd]):
        return _batch_norm_backward_by_aten(
            gradient, other, activation, input, weight, mean, invstd, eps, keeps_masked, ceiling
        )
    made, masked = (
        torch.empty_like(input, memory_format=_CHANNELS_LAST),
        torch.empty_like(input, memory_format=_CHANNELS_LAST) if keeps_masked else None,
    )
    of_weight, of_bias = torch.empty_like(weight), torch.empty_like(weight)
    channels = input.shape[1]
    addresses = map(
        _address, (gradient, other, activation, input, weight, mean, invstd, masked, made, of_weight, of_bias)
    )
    native.library.batch_norm_backward(
        *addresses, input.numel() // channels, channels, _or_nan(ceiling), _threads(input)
    )
    return made, of_weight, of_bias, input.new_empty(0) if masked is None else masked


def _batch_norm_backward_by_aten(
    gradient: Tensor,
    other: Tensor | None,
    activation: Tensor | None,
    input: Tensor,
    weight: Tensor,
    mean: Tensor,
    invstd: Tensor,
    eps: float,
    keeps_masked: bool,
    ceiling: float | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    total = gradient if other is None else gradient + other
    masked = total if activation is None else _masked(total, activation, ceiling)
    made = stride_safe(aten.native_batch_norm_backward.default)(
        masked, input, weight, None, None, mean, invstd, True, eps, [True, True, True]
    )
    if not keeps_masked:
        return *made, input.new_empty(0)
    return *made, masked.clone() if masked is gradient else masked


def _masked(gradient: Tensor, activation: Tensor, ceiling: float | None) -> Tensor:
    return (
        aten.threshold_backward(gradient, activation, 0)
        if ceiling is None
        else aten.hardtanh_backward(gradient, activation, 0.0, ceiling)
    )


def _threads(images: Tensor) -> int:
    return max(1, min(torch.get_num_threads(), images.numel() // FOR_A_THREAD))


def _or_nan(ceiling: float | None) -> float:
    """How the extension is told a ceiling: nothing is above a NaN."""
    return float("nan") if ceiling is None else ceiling


def _fit(images: list[Tensor], vectors: list[Tensor]) -> bool:
    """Whether these are what the extension takes: pictures of one shape in channels_last memory, and a number for each
    channel."""
    shape, channels = images[0].shape, images[0].shape[1]
    return all(
        one.shape == shape
        and one.dtype is torch.float32
        and one.device.type == "cpu"
        and one.is_contiguous(memory_format=_CHANNELS_LAST)
        for one in images
    ) and all(one.dtype is torch.float32 and one.shape == (channels,) and one.is_contiguous() for one in vectors)


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


# The library object must live as long as the ops are registered.
_LIBRARY = torch.library.Library("oneflow", "FRAGMENT")
_LIBRARY.define(
    "batch_norm_relu(Tensor input, Tensor? residual, Tensor weight, Tensor bias, Tensor(a!)? running_mean, Tensor(b!)? "
    "running_var, float momentum, float eps, "
    "bool relu, float? ceiling=None) -> (Tensor, Tensor, Tensor)"
)
_LIBRARY.define(
    "batch_norm_relu_backward(Tensor gradient, Tensor? other, Tensor? activation, Tensor input, Tensor weight, Tensor "
    "mean, Tensor invstd, float eps, "
    "bool keeps_masked, float? ceiling=None) -> (Tensor, Tensor, Tensor, Tensor)"
)
_LIBRARY.impl("batch_norm_relu", _batch_norm, "CompositeExplicitAutograd")
_LIBRARY.impl("batch_norm_relu_backward", _batch_norm_backward, "CompositeExplicitAutograd")
