"""Normalisation: over the batch, over a layer, over groups of channels.

Scale and offset may be float32 beside a half-precision input.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from oneflow.engine.ops.elementwise import require_float
from oneflow.engine.ops.row import Family, require

ROWS = Family()


def _require_channels(x: Tensor, axis: int, *statistics: Tensor | None) -> None:
    require(require_float(x).dim() >= 2, f"the input has rank {x.dim()}, expected 2 or more")
    require(-x.dim() <= axis < x.dim(), f"the axis {axis} does not exist in an input of rank {x.dim()}")
    for found in [tuple(s.shape) for s in statistics if s is not None]:
        require(
            found == (x.shape[axis],),
            f"axis {axis} has {x.shape[axis]} channels, a statistic or parameter has shape {found}",
        )


@ROWS.op("layers.batch_norm_train", precision="gray")
def batch_norm_train(
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    *,
    axis: int,
    momentum: float,
    epsilon: float,
) -> Tensor:
    """Normalises by the batch's own statistics (biased variance) and moves ``mean`` and ``variance`` towards them, the
    latter by the unbiased variance: moving = momentum · moving + (1 - momentum) · batch."""
    _require_channels(x, axis, mean, variance, gamma, beta)
    require(
        x.numel() > x.shape[axis],
        f"batch statistics need more than one value a channel, the input has shape {tuple(x.shape)}",
    )
    return F.batch_norm(x.movedim(axis, 1), mean, variance, gamma, beta, True, 1.0 - momentum, epsilon).movedim(1, axis)


@ROWS.op("layers.batch_norm_infer", precision="gray")
def batch_norm_infer(
    x: Tensor, mean: Tensor, variance: Tensor, gamma: Tensor | None, beta: Tensor | None, *, axis: int, epsilon: float
) -> Tensor:
    """Normalises by the moving statistics, which get no gradient."""
    _require_channels(x, axis, mean, variance, gamma, beta)
    return F.batch_norm(x.movedim(axis, 1), mean, variance, gamma, beta, False, 0.0, epsilon).movedim(1, axis)


@ROWS.op("nn.batch_normalization")
def batch_normalization(
    x: Tensor, mean: Tensor, variance: Tensor, offset: Tensor | None, scale: Tensor | None, *, axis: int, epsilon: float
) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) · scale + offset. Unlike the moving statistics of a layer, these get
    gradients."""
    _require_channels(x, axis, mean, variance, offset, scale)
    shape = [1] * x.dim()
    shape[axis] = -1
    factor = torch.rsqrt(variance + epsilon) if scale is None else torch.rsqrt(variance + epsilon) * scale
    y = (x - mean.reshape(shape)) * factor.reshape(shape)
    return y if offset is None else y + offset.reshape(shape)


@ROWS.op("nn.layer_norm", precision="gray")
def layer_norm(x: Tensor, gamma: Tensor | None, beta: Tensor | None, *, norm_dims: int, epsilon: float) -> Tensor:
    """Normalises over the last ``norm_dims`` dimensions. Gamma and beta have the shape of any number of last
    dimensions."""
    shape = list(require_float(x).shape[x.dim() - norm_dims :])
    for found in [tuple(p.shape) for p in (gamma, beta) if p is not None]:
        require(
            found == tuple(x.shape[x.dim() - len(found) :]),
            f"gamma and beta have the shape of the last dimensions, got {found}",
        )
    gamma, beta = (p if p is None else p.to(x.dtype) for p in (gamma, beta))
    if all(p is None or list(p.shape) == shape for p in (gamma, beta)):
        return F.layer_norm(x, shape, gamma, beta, epsilon)
    y = F.layer_norm(x, shape, None, None, epsilon)
    y = y if gamma is None else y * gamma
    return y if beta is None else y + beta


@ROWS.op("nn.group_norm", precision="gray")
def group_norm(x: Tensor, gamma: Tensor | None, beta: Tensor | None, *, groups: int, epsilon: float) -> Tensor:
    """Normalises each sample over ``groups`` equal groups of its channels; as many groups as channels is instance
    norm."""
    _require_channels(x, 1, gamma, beta)
    require(groups > 0 and x.shape[1] % groups == 0, f"{x.shape[1]} channels cannot be divided into {groups} groups")
    gamma, beta = (p if p is None else p.to(x.dtype) for p in (gamma, beta))
    return F.group_norm(x, groups, gamma, beta, epsilon)


@ROWS.op("nn.moments")
def moments(x: Tensor, *, dims: Sequence[int], keepdims: bool) -> tuple[Tensor, Tensor]:
    """Mean and biased variance over ``dims``."""
    variance, mean = torch.var_mean(require_float(x), list(dims), correction=0, keepdim=keepdims)
    return (mean, variance) if mean.dim() else (mean.reshape(1), variance.reshape(1))
