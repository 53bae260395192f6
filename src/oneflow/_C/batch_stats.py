"""The parts of a batch norm whose statistics are put together from several batches."""

from __future__ import annotations

import torch


def _others(x: torch.Tensor) -> list[int]:
    """Every dim but that of the channels."""
    return [d for d in range(x.dim()) if d != 1]


def _shaped(value: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return value.reshape(1, -1, *[1] * (x.dim() - 2))


def batch_norm_stats(input: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and 1 / sqrt(variance + eps) of each channel."""
    variance, mean = torch.var_mean(input, _others(input), correction=0)
    return mean, torch.rsqrt(variance + eps)


def batch_norm_elemt(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, mean: torch.Tensor, invstd: torch.Tensor, eps: float
) -> torch.Tensor:
    """(input - mean) * invstd * weight + bias for each channel."""
    return (input - _shaped(mean, input)) * _shaped(invstd * weight, input) + _shaped(bias, input)


def batch_norm_gather_stats_with_counts(
    input: torch.Tensor,
    mean: torch.Tensor,
    invstd: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    momentum: float,
    eps: float,
    counts: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and 1 / sqrt(variance + eps) of all batches from those of each, (batches, channels), of ``counts``
    elements."""
    share = counts.reshape(-1, 1).to(mean.dtype) / counts.sum()
    whole = (mean * share).sum(0)
    variance = ((invstd.square().reciprocal() - eps + (mean - whole).square()) * share).sum(0)
    total = counts.sum().to(mean.dtype)
    if running_mean is not None:
        running_mean.lerp_(whole, momentum)
    if running_var is not None:
        running_var.lerp_(variance * total / (total - 1), momentum)
    return whole, torch.rsqrt(variance + eps)


def batch_norm_backward_reduce(
    grad_out: torch.Tensor,
    input: torch.Tensor,
    mean: torch.Tensor,
    invstd: torch.Tensor,
    weight: torch.Tensor,
    input_g: bool = True,
    weight_g: bool = True,
    bias_g: bool = True,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sums of the gradient and of its product with (input - mean), and the gradients of weight and bias."""
    sums = grad_out.sum(_others(input))
    products = (grad_out * (input - _shaped(mean, input))).sum(_others(input))
    return sums, products, products * invstd, sums


def batch_norm_backward_elemt(
    grad_out: torch.Tensor,
    input: torch.Tensor,
    mean: torch.Tensor,
    invstd: torch.Tensor,
    weight: torch.Tensor,
    sum_dy: torch.Tensor,
    sum_dy_xmu: torch.Tensor,
    count: torch.Tensor,
) -> torch.Tensor:
    """The gradient of the input, from the sums of all batches."""
    total = count.sum().to(input.dtype)
    centred = input - _shaped(mean, input)
    inner = grad_out - _shaped(sum_dy / total, input) - centred * _shaped(invstd.square() * sum_dy_xmu / total, input)
    return inner * _shaped(invstd * weight, input)
