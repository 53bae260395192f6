"""Batch norm of a batch that lies in parts on several ranks, with the statistics of all of it.

Going forward ranks add up two numbers per channel, and two going back, whatever their number. Dim 1 holds the channels.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from oneflow.engine.ops.dense_operands import stride_safe

aten = torch.ops.aten


def _wide_dtype(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def _wide(x: Tensor | None, like: Tensor) -> Tensor | None:
    return None if x is None else x.to(_wide_dtype(like))


def sums_of_part(x: Tensor) -> Tensor:
    """The sum and the sum of squares of each channel, as two rows of float64.

    They come from the part's mean and variance; in float64 nothing is lost where the squares of large means cancel
    later.
    """
    count = x.numel() // x.shape[1]
    scratch = torch.zeros(2, x.shape[1], dtype=_wide_dtype(x), device=x.device)  # their dtype is that of the result
    mean, variance = (row.double() for row in aten.batch_norm_update_stats(x, *scratch, 0.0))
    return torch.stack([mean, variance + mean.square()]) * count


def from_sums(sums: Tensor, count: int, like: Tensor) -> Tensor:
    """Mean and biased variance of each channel from the sums over all ``count`` values, for an input like the given
    one."""
    mean, square = sums / count
    return torch.stack([mean, (square - mean.square()).clamp_(min=0)]).to(_wide_dtype(like))


def normalise(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    statistics: Tensor,
    count: int,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """What ``native_batch_norm`` gives in training mode, from the mean and variance of all ``count`` values per
    channel.

    Moves the running statistics in place, as the op does, the variance by the unbiased one.
    """
    mean, variance = statistics
    if running_mean is not None:
        running_mean.mul_(1 - momentum).add_(mean, alpha=momentum)
    if running_var is not None:
        running_var.mul_(1 - momentum).add_(variance, alpha=momentum * count / (count - 1))
    out = aten.native_batch_norm(x, _wide(weight, x), _wide(bias, x), mean, variance, False, 0.0, epsilon)[0]
    given = next((p for p in (weight, bias, running_mean) if p is not None), x)
    return out, mean.to(given.dtype), torch.rsqrt(variance + epsilon).to(given.dtype)


def gradient_sums(gradient: Tensor, x: Tensor, mean: Tensor, inverse_deviation: Tensor) -> Tensor:
    """The sums over this part of gradient · normalised x, and of the gradient, as two rows."""
    x, gradient = x.to(_wide_dtype(x)), gradient.to(_wide_dtype(x))
    given = mean.to(x.dtype), inverse_deviation.to(x.dtype).pow(-2)
    _, scale, offset = stride_safe(aten.native_batch_norm_backward.default)(
        gradient, x, None, *given, None, None, False, 0.0, [False, True, True]
    )
    return torch.stack([scale, offset])


def gradients(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor | None,
    mean: Tensor,
    inverse_deviation: Tensor,
    sums: Tensor,
    count: int,
    mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of x, scale and offset from the sums over all ``count`` values per channel; None where the mask
    says so."""
    scale, offset = (
        s.to(mean.dtype if weight is None else weight.dtype) if wanted else None for s, wanted in zip(sums, mask[1:])
    )
    return (
        _input_gradient(gradient, x, weight, mean, inverse_deviation, sums / count) if mask[0] else None,
        scale,
        offset,
    )


def _input_gradient(
    gradient: Tensor, x: Tensor, weight: Tensor | None, mean: Tensor, inverse_deviation: Tensor, means: Tensor
) -> Tensor:
    """factor · (gradient - mean(gradient) - normalised x · mean(gradient · normalised x)): an affine map of the
    normalised x, which the op in evaluation mode gives, plus the scaled gradient."""
    wide = x.to(_wide_dtype(x))
    mean, inverse = mean.to(wide.dtype), inverse_deviation.to(wide.dtype)
    factor = inverse if weight is None else inverse * weight
    result = aten.native_batch_norm(
        wide, -factor * means[0], -factor * means[1], mean, inverse.pow(-2), False, 0.0, 0.0
    )[0]
    result.addcmul_(gradient.to(wide.dtype), factor.view([1, -1] + [1] * (x.dim() - 2)))
    return result.to(gradient.dtype)
