"""Layers and losses, as functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from oneflow.engine.core.errors import ArgumentError
from oneflow.nn.functional import _dropout, _loss


def matmul(
    input: torch.Tensor, other: torch.Tensor, transpose_a: bool = False, transpose_b: bool = False, alpha: float = 1.0
) -> torch.Tensor:
    """alpha * input @ other, each transposed first where asked for."""
    made = (input.mT if transpose_a else input) @ (other.mT if transpose_b else other)
    return made if alpha == 1.0 else made * alpha


def bias_add(x: torch.Tensor, bias: torch.Tensor, axis: int = 1) -> torch.Tensor:
    """x plus ``bias`` along ``axis``."""
    return x + bias.reshape([-1 if d == axis % x.dim() else 1 for d in range(x.dim())])


def dropout(
    input: torch.Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    generator: torch.Generator | None = None,
    *,
    addend: torch.Tensor | None = None,
) -> torch.Tensor:
    """Zeros with the probability p and the rest scaled by 1 / (1 - p); ``addend`` is added at the end."""
    return _dropout.dropout(input, p, training, generator, addend=addend, inplace=inplace)


def embedding(
    weight: torch.Tensor, indices: torch.Tensor, padding_idx: int | None = None, scale_grad_by_freq: bool = False
) -> torch.Tensor:
    """The rows of ``weight`` that ``indices`` name."""
    return F.embedding(indices, weight, padding_idx, scale_grad_by_freq=scale_grad_by_freq)


def _first(x: torch.Tensor, channel_pos: str) -> torch.Tensor:
    """x with its channels second, wherever they stand."""
    if channel_pos not in ("channels_first", "channels_last"):
        raise ArgumentError(f'channels stand "channels_first" or "channels_last", got {channel_pos!r}')
    return x if channel_pos == "channels_first" else x.movedim(-1, 1)


def _back(x: torch.Tensor, channel_pos: str) -> torch.Tensor:
    return x if channel_pos == "channels_first" else x.movedim(1, -1)


def _conv(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    channel_pos: str = "channels_first",
) -> torch.Tensor:
    """A convolution over as many dims as x has beside batch and channels."""
    call = (F.conv1d, F.conv2d, F.conv3d)[x.dim() - 3]
    return _back(
        call(_first(x, channel_pos), _first(weight, channel_pos), bias, stride, padding, dilation, groups), channel_pos
    )


conv1d = conv2d = conv3d = _conv


def _deconv(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    filters: int | None = None,
    padding: Any = 0,
    data_format: str = "channels_first",
    kernel_size: Any = None,
    output_padding: Any = 0,
    strides: Any = 1,
    dilation_rate: Any = 1,
    groups: int = 1,
) -> torch.Tensor:
    """A transposed convolution; ``filters`` and ``kernel_size`` are read from the weight."""
    call = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[x.dim() - 3]
    made = call(
        _first(x, data_format),
        _first(weight, data_format),
        bias,
        strides,
        padding,
        output_padding,
        groups,
        dilation_rate,
    )
    return _back(made, data_format)


deconv1d = deconv2d = deconv3d = _deconv


def _max_pool(
    x: torch.Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    return_indices: bool = True,
    ceil_mode: bool = False,
    data_format: str = "channels_first",
) -> tuple[torch.Tensor, torch.Tensor]:
    """The greatest of each window, and where each stands."""
    call: Any = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[x.dim() - 3]
    values, places = call(
        _first(x, data_format), kernel_size, stride, padding, dilation, ceil_mode=ceil_mode, return_indices=True
    )
    return _back(values, data_format), _back(places, data_format)


max_pool1d = max_pool2d = max_pool3d = _max_pool


def avg_pool2d_nhwc(
    x: torch.Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> torch.Tensor:
    """Means of windows of pictures whose channels stand last."""
    made = F.avg_pool2d(
        x.movedim(-1, 1), kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override or None
    )
    return made.movedim(1, -1)


def pixel_shuffle(input: torch.Tensor, h_upscale_factor: int, w_upscale_factor: int) -> torch.Tensor:
    """Channels laid out as pixels: (N, C * h * w, H, W) to (N, C, H * h, W * w)."""
    batch, channels, height, width = input.shape
    parts = input.reshape(batch, -1, h_upscale_factor, w_upscale_factor, height, width).permute(0, 1, 4, 2, 5, 3)
    return parts.reshape(batch, -1, height * h_upscale_factor, width * w_upscale_factor)


def _resized(
    x: torch.Tensor, mode: str, scales: tuple[float, ...], size: Any, align_corners: bool | None, data_format: str
) -> torch.Tensor:
    given: dict[str, Any] = {"size": tuple(size)} if size else {"scale_factor": scales}
    return _back(F.interpolate(_first(x, data_format), mode=mode, align_corners=align_corners, **given), data_format)


def upsample_nearest_1d(
    x: torch.Tensor, scale_factor: float = 0.0, output_size: Any = None, data_format: str = "channels_first"
) -> torch.Tensor:
    """Enlarged by the nearest element."""
    return _resized(x, "nearest", (scale_factor,), output_size, None, data_format)


def upsample_linear_1d(
    x: torch.Tensor,
    scale_factor: float = 0.0,
    align_corners: bool = False,
    output_size: Any = None,
    data_format: str = "channels_first",
) -> torch.Tensor:
    """Enlarged linearly."""
    return _resized(x, "linear", (scale_factor,), output_size, align_corners, data_format)


def upsample_nearest_2d(
    x: torch.Tensor,
    height_scale: float = 0.0,
    width_scale: float = 0.0,
    output_size: Any = None,
    data_format: str = "channels_first",
) -> torch.Tensor:
    """Enlarged by the nearest pixel."""
    return _resized(x, "nearest", (height_scale, width_scale), output_size, None, data_format)


def upsample_bilinear_2d(
    x: torch.Tensor,
    height_scale: float = 0.0,
    width_scale: float = 0.0,
    align_corners: bool = False,
    output_size: Any = None,
    data_format: str = "channels_first",
) -> torch.Tensor:
    """Enlarged linearly in two dims."""
    return _resized(x, "bilinear", (height_scale, width_scale), output_size, align_corners, data_format)


def upsample_bicubic_2d(
    x: torch.Tensor,
    height_scale: float = 0.0,
    width_scale: float = 0.0,
    align_corners: bool = False,
    output_size: Any = None,
    data_format: str = "channels_first",
) -> torch.Tensor:
    """Enlarged by cubic curves."""
    return _resized(x, "bicubic", (height_scale, width_scale), output_size, align_corners, data_format)


def upsample_nearest_3d(
    x: torch.Tensor,
    depth_scale: float = 0.0,
    height_scale: float = 0.0,
    width_scale: float = 0.0,
    output_size: Any = None,
    data_format: str = "channels_first",
) -> torch.Tensor:
    """Enlarged by the nearest element in three dims."""
    return _resized(x, "nearest", (depth_scale, height_scale, width_scale), output_size, None, data_format)


def upsample_trilinear_3d(
    x: torch.Tensor,
    depth_scale: float = 0.0,
    height_scale: float = 0.0,
    width_scale: float = 0.0,
    align_corners: bool = False,
    output_size: Any = None,
    data_format: str = "channels_first",
) -> torch.Tensor:
    """Enlarged linearly in three dims."""
    return _resized(x, "trilinear", (depth_scale, height_scale, width_scale), output_size, align_corners, data_format)


def upsample(
    x: torch.Tensor,
    height_scale: float,
    width_scale: float,
    align_corners: bool = False,
    interpolation: str = "nearest",
    data_format: str = "channels_first",
) -> torch.Tensor:
    """Enlarged pictures; ``interpolation`` is "nearest", "bilinear" or "bicubic"."""
    return _resized(
        x,
        interpolation,
        (height_scale, width_scale),
        None,
        None if interpolation == "nearest" else align_corners,
        data_format,
    )


def grid_sample(
    input: torch.Tensor,
    grid: torch.Tensor,
    interpolation_mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> torch.Tensor:
    """Samples of ``input`` at the positions of ``grid``."""
    return F.grid_sample(input, grid, interpolation_mode, padding_mode, align_corners)


def leaky_relu(x: torch.Tensor, alpha: float = 0.01, inplace: bool = False) -> torch.Tensor:
    """x above 0, alpha * x below."""
    return F.leaky_relu(x, alpha, inplace)


def gelu_with_approximate(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """gelu, by erf ("none") or by tanh."""
    return F.gelu(x, approximate=approximate)


def fast_gelu(x: torch.Tensor) -> torch.Tensor:
    """gelu by tanh."""
    return F.gelu(x, approximate="tanh")


def gumbel_softmax(input: torch.Tensor, dim: int = -1, tau: float = 1.0, hard: bool = False) -> torch.Tensor:
    """softmax with Gumbel noise; ``hard`` gives one-hot rows."""
    return F.gumbel_softmax(input, tau, hard, dim=dim)


def normalize(input: torch.Tensor, p: float = 2.0, dim: int = 0, epsilon: float = 1e-12) -> torch.Tensor:
    """Divided by the p-norm along ``dim``."""
    return F.normalize(input, p, dim, epsilon)


def layer_norm(x: torch.Tensor, begin_norm_axis: int, begin_params_axis: int, epsilon: float) -> torch.Tensor:
    """Mean 0 and variance 1 over the axes from ``begin_norm_axis`` on."""
    return F.layer_norm(x, x.shape[begin_norm_axis:], None, None, epsilon)


def layer_norm_affine(
    x: torch.Tensor,
    gamma: torch.Tensor,
    beta: torch.Tensor,
    begin_norm_axis: int,
    begin_params_axis: int,
    epsilon: float,
) -> torch.Tensor:
    """``layer_norm`` times gamma plus beta, which have the shape of the axes from ``begin_params_axis`` on."""
    return F.layer_norm(x, x.shape[begin_norm_axis:], None, None, epsilon) * gamma + beta


def group_norm(
    x: torch.Tensor,
    gamma: torch.Tensor | None = None,
    beta: torch.Tensor | None = None,
    affine: bool = True,
    num_groups: int = 1,
    epsilon: float = 1e-5,
) -> torch.Tensor:
    """Mean 0 and variance 1 over groups of channels, then times gamma plus beta if ``affine``."""
    return F.group_norm(x, num_groups, gamma if affine else None, beta if affine else None, epsilon)


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor | None, normalized_shape: Sequence[int], epsilon: float = 1e-6
) -> torch.Tensor:
    """x / sqrt(mean(x^2) + epsilon) over the last dims, times weight."""
    return F.rms_norm(x, list(normalized_shape), weight, epsilon)


def cross_entropy(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """Cross entropy of logits; targets are class numbers, also int32, or probabilities."""
    return _loss.cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing)


def nll_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> torch.Tensor:
    """Minus the log-probability of the target class."""
    return F.nll_loss(input, target.long(), weight, ignore_index=ignore_index, reduction=reduction)


def sparse_softmax_cross_entropy(logits: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """The cross entropy of each row, in the shape of ``label``; classes stand along the last dim."""
    rows = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), label.reshape(-1).long(), reduction="none")
    return rows.reshape(label.shape)


def sparse_cross_entropy(prediction: torch.Tensor, label: torch.Tensor, depth: int | None = None) -> torch.Tensor:
    """Minus the logarithm of the probability that each row gives its label."""
    return -prediction.gather(-1, label.long().unsqueeze(-1)).squeeze(-1).log()


def softmax_cross_entropy(logits: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """The cross entropy of each row against the probabilities ``label``."""
    return -(label * F.log_softmax(logits, -1)).sum(-1)


def softmax_cross_entropy_grad(dy: torch.Tensor, label: torch.Tensor, prob: torch.Tensor) -> torch.Tensor:
    """The gradient of ``softmax_cross_entropy`` from the probabilities it found."""
    return dy.unsqueeze(-1) * (prob - label)


def binary_cross_entropy_loss(
    input: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None, reduction: str = "mean"
) -> torch.Tensor:
    """Cross entropy of probabilities."""
    return F.binary_cross_entropy(input, target, weight, reduction=reduction)


def binary_cross_entropy_with_logits_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    pos_weight: torch.Tensor | None = None,
    reduction: str = "mean",
) -> torch.Tensor:
    """Cross entropy of the sigmoid of logits."""
    return F.binary_cross_entropy_with_logits(input, target, weight, reduction=reduction, pos_weight=pos_weight)


def binary_cross_entropy_with_logits_loss_grad(
    dy: torch.Tensor,
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    pos_weight: torch.Tensor | None = None,
) -> torch.Tensor:
    """The gradient of the loss of each element."""
    sigmoid = input.sigmoid()
    ones = torch.ones_like(input) if pos_weight is None else pos_weight
    grad = dy * (sigmoid * (1 - target) - ones * target * (1 - sigmoid))
    return grad if weight is None else grad * weight


def l1_loss(input: torch.Tensor, target: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    """Absolute differences."""
    return F.l1_loss(input, target, reduction=reduction)


def mse_loss(input: torch.Tensor, target: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    """Squared differences."""
    return F.mse_loss(input, target, reduction=reduction)


def smooth_l1_loss(
    input: torch.Tensor, target: torch.Tensor, beta: float = 1.0, reduction: str = "mean"
) -> torch.Tensor:
    """Squares of small differences, absolute values of others."""
    return F.smooth_l1_loss(input, target, reduction=reduction, beta=beta)


def kl_div_loss(
    input: torch.Tensor, target: torch.Tensor, reduction: str = "mean", log_target: bool = False
) -> torch.Tensor:
    """target * (log target - input); "mean" is over all elements."""
    each = F.kl_div(input, target, reduction="none", log_target=log_target)
    return {"none": each, "mean": each.mean(), "sum": each.sum()}[reduction]


def ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: torch.Tensor,
    target_lengths: torch.Tensor,
    max_target_length: int | None = None,
    blank: int = 0,
    zero_infinity: bool = False,
    reduction: str = "mean",
) -> torch.Tensor:
    """The CTC loss; the greatest target length is read from ``target_lengths``."""
    return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)


def combined_margin_loss(
    x: torch.Tensor, label: torch.Tensor, m1: float = 1.0, m2: float = 0.0, m3: float = 0.0
) -> torch.Tensor:
    """Cosines with that of the label replaced by cos(m1 * angle + m2) - m3."""
    return _loss.combined_margin(x, label, m1, m2, m3)
