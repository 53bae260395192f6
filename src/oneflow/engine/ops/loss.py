"""Losses. Those with ``reduction`` give shape (1,) for "mean" and "sum"."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from oneflow.engine.core.errors import DTypeError
from oneflow.engine.ops.elementwise import operands, require_float
from oneflow.engine.ops.row import Family, require

ROWS = Family()

SMALLEST_PROBABILITY = 1e-20
LARGEST_LOSS = -math.log(SMALLEST_PROBABILITY)

# F.cross_entropy skips samples of one label. It is given one that no data set has, so that every wrong label fails.
_NO_LABEL = -(2**60)


class _Capped(torch.autograd.Function):
    """min(x, LARGEST_LOSS) whose gradient passes as if nothing was cut: a hopeless sample still learns."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clamp(max=LARGEST_LOSS)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Tensor:
        (gradient,) = gradients
        return gradient


class _SoftLabels(torch.autograd.Function):
    """Cross entropy against soft labels; the gradient is softmax - labels, which takes the labels to sum to 1."""

    @staticmethod
    def forward(ctx: Any, labels: Tensor, logits: Tensor) -> Tensor:
        log_p = torch.log_softmax(logits, -1)
        ctx.save_for_backward(labels, log_p)
        return -(labels * log_p.clamp(min=-LARGEST_LOSS)).sum(-1)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[None, Tensor]:
        (gradient,) = gradients
        labels, log_p = ctx.saved_tensors
        return None, gradient.unsqueeze(-1) * (log_p.exp() - labels)


def _class_numbers(labels: Tensor, scores: Tensor) -> Tensor:
    """Int64 labels of shape scores.shape[:-1], from labels of that shape or with a last dimension of 1."""
    if labels.dtype not in (torch.int8, torch.int32, torch.int64):
        raise DTypeError(
            f"labels are class numbers of int8, int32 or int64, got {labels.dtype}; are labels and logits in this "
            f"order?"
        )
    require(require_float(scores).dim() >= 2, f"logits have rank {scores.dim()}, expected 2 or more")
    expected = scores.shape[:-1]
    require(
        labels.shape in (expected, (*expected, 1)),
        f"labels have shape {tuple(labels.shape)}, logits of shape {tuple(scores.shape)} expect {tuple(expected)}",
    )
    return labels.reshape(expected).long()


@ROWS.op("nn.sparse_softmax_cross_entropy_with_logits")
def sparse_softmax_cross_entropy_with_logits(labels: Tensor, logits: Tensor, *, stops_at_cap: bool = False) -> Tensor:
    """-log(max(softmax(logits)[label], 1e-20)) a sample; the gradient is softmax - one_hot(label), where the loss is
    capped too unless ``stops_at_cap``."""
    classes = _class_numbers(labels, logits)
    loss = F.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), classes.reshape(-1), reduction="none", ignore_index=_NO_LABEL
    )
    capped = loss.clamp(max=LARGEST_LOSS) if stops_at_cap else _Capped.apply(loss)
    return capped.reshape(classes.shape)


@ROWS.op("nn.sparse_cross_entropy")
def sparse_cross_entropy(labels: Tensor, prediction: Tensor) -> Tensor:
    """-log(max(prediction[label], 1e-20)) a sample."""
    classes = _class_numbers(labels, prediction)
    chosen = prediction.gather(-1, classes.unsqueeze(-1)).squeeze(-1)
    return -chosen.clamp(min=SMALLEST_PROBABILITY).log()


@ROWS.op("nn.softmax_cross_entropy_with_logits")
def softmax_cross_entropy_with_logits(labels: Tensor, logits: Tensor) -> Tensor:
    """-Σ labels · log(max(softmax(logits), 1e-20)) over the last dimension."""
    operands(require_float(labels), require_float(logits))
    require(
        labels.shape == logits.shape,
        f"labels have shape {tuple(labels.shape)}, logits {tuple(logits.shape)}; they must be equal",
    )
    require(logits.dim() >= 2, f"logits have rank {logits.dim()}, expected 2 or more")
    return _SoftLabels.apply(labels, logits)


@ROWS.op("nn.sigmoid_cross_entropy_with_logits")
def sigmoid_cross_entropy_with_logits(labels: Tensor, logits: Tensor) -> Tensor:
    """-labels · log(sigmoid(logits)) - (1 - labels) · log(1 - sigmoid(logits)), element by element; labels get no
    gradient."""
    require_float(logits)
    require(
        labels.shape == logits.shape,
        f"labels have shape {tuple(labels.shape)}, logits {tuple(logits.shape)}; they must be equal",
    )
    labels = operands(labels, logits)[0].detach() if labels.dtype.is_floating_point else labels.to(logits.dtype)
    return F.binary_cross_entropy_with_logits(logits, labels, reduction="none")


@ROWS.op("smooth_l1_loss")
def smooth_l1_loss(prediction: Tensor, label: Tensor, *, beta: float) -> Tensor:
    """d² / (2 beta) where |d| < beta, else |d| - beta / 2."""
    require(beta >= 0, f"beta is 0 or more, got {beta}")
    return F.smooth_l1_loss(*_pair(prediction, label), reduction="none", beta=beta)


def _pair(x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    operands(require_float(x), target)
    require(
        x.shape == target.shape,
        f"the input has shape {tuple(x.shape)}, the target {tuple(target.shape)}; they must be equal",
    )
    return x, target


def _constant(weight: Tensor | None) -> Tensor | None:
    return None if weight is None else weight.detach()


def _reduced(loss: Tensor, reduction: str) -> Tensor:
    require(reduction in ("mean", "sum", "none"), f"reduction is 'mean', 'sum' or 'none', got {reduction!r}")
    if reduction == "none":
        return loss
    return (loss.mean() if reduction == "mean" else loss.sum()).reshape(1)


@ROWS.op("nn.l1_loss")
def l1_loss(x: Tensor, target: Tensor, *, reduction: str) -> Tensor:
    x, target = _pair(x, target)
    return _reduced((x - target).abs(), reduction)


@ROWS.op("nn.mse_loss")
def mse_loss(x: Tensor, target: Tensor, *, reduction: str) -> Tensor:
    x, target = _pair(x, target)
    return _reduced((x - target).square(), reduction)


@ROWS.op("nn.bce_loss")
def bce_loss(x: Tensor, target: Tensor, weight: Tensor | None, *, reduction: str) -> Tensor:
    """Binary cross entropy of probabilities; logarithms are not taken below -100. The weight gets no gradient."""
    return _reduced(F.binary_cross_entropy(*_pair(x, target), _constant(weight), reduction="none"), reduction)


@ROWS.op("nn.bce_with_logits_loss")
def bce_with_logits_loss(
    x: Tensor, target: Tensor, weight: Tensor | None, pos_weight: Tensor | None, *, reduction: str
) -> Tensor:
    """Binary cross entropy of sigmoid(x). The weights get no gradient."""
    x, target = _pair(x, target)
    loss = F.binary_cross_entropy_with_logits(
        x, target, _constant(weight), reduction="none", pos_weight=_constant(pos_weight)
    )
    return _reduced(loss, reduction)


@ROWS.op("nn.kl_div_loss")
def kl_div_loss(x: Tensor, target: Tensor, *, log_target: bool, reduction: str) -> Tensor:
    """target · (log(target) - x): x are log probabilities, and with ``log_target`` the target too."""
    return _reduced(F.kl_div(*_pair(x, target), reduction="none", log_target=log_target), reduction)


@ROWS.op("nn.margin_ranking_loss")
def margin_ranking_loss(x1: Tensor, x2: Tensor, target: Tensor, *, margin: float, reduction: str) -> Tensor:
    """max(0, -target · (x1 - x2) + margin): target is 1 where x1 should be the larger, -1 where x2 should."""
    operands(require_float(x1), require_float(x2)), operands(x1, target)
    try:
        torch.broadcast_shapes(x1.shape, x2.shape, target.shape)
    except RuntimeError:
        shapes = ", ".join(str(tuple(t.shape)) for t in (x1, x2, target))
        require(False, f"the two inputs and the target have shapes {shapes}, which cannot be broadcast to one")
    return _reduced((margin - target * (x1 - x2)).clamp(min=0), reduction)


@ROWS.op("combined_margin_loss")
def combined_margin_loss(x: Tensor, label: Tensor, *, m1: float, m2: float, m3: float) -> Tensor:
    """Cosines (N, classes) in which that of the label c has become cos(m1 · acos(c) + m2) - m3."""
    fits = (
        require_float(x).dim() == 2
        and tuple(label.shape) in ((x.shape[0],), (x.shape[0], 1))
        and not label.dtype.is_floating_point
    )
    require(
        fits,
        f"x has shape (batch, classes) and the labels are integers of shape (batch,), got {tuple(x.shape)} and "
        f"{tuple(label.shape)}",
    )
    is_label = torch.arange(x.shape[1], device=x.device) == label.reshape(-1, 1).long()
    # The label's cosine alone is put through acos, whose slope is infinite at 1; a sum, so that classes may lie on
    # several devices.
    cosine = torch.where(is_label, x, torch.zeros_like(x)).sum(1, keepdim=True)
    moved = torch.cos(m1 * torch.acos(cosine) + m2) - m3
    return torch.where(is_label, moved, x)


@ROWS.op("nn.triplet_margin_loss")
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    margin: float,
    p: float,
    epsilon: float,
    swap: bool,
    reduction: str,
) -> Tensor:
    """max(0, |anchor - positive| - |anchor - negative| + margin) with p-norms over the last dimension."""
    _pair(anchor, positive), _pair(anchor, negative)
    loss = F.triplet_margin_loss(anchor, positive, negative, margin, p, epsilon, swap, reduction="none")
    return _reduced(loss, reduction)
