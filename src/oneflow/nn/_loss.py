"""``flow.nn``: losses.

The functions named like classes (``L1Loss`` ...) take ``reduction`` "mean", "sum" (both give shape (1,)) or "none".
"""

from __future__ import annotations

from oneflow.engine.core.number import flag, number
from oneflow.engine.ir.blob import Blob, emit
from oneflow.engine.ir.trace import require_trace
from oneflow.engine.ops import loss as rows


def sparse_softmax_cross_entropy_with_logits(labels: Blob, logits: Blob, name: str | None = None) -> Blob:
    """-log of the softmax probability of each sample's label, at most 46.0517. Labels come first.

    ``labels`` are int8, int32 or int64 of shape logits.shape[:-1], which is also the result's; a last dimension of 1 is
    allowed. A label outside [0, logits.shape[-1]) fails when the job runs. The gradient is softmax - one_hot(label); in
    a job made by ``flow.function`` it is 0 where the loss is at its largest, as it was when that was the decorator's
    name.
    """
    trace = require_trace("flow.nn.sparse_softmax_cross_entropy_with_logits")
    stops = trace.settings.gradient_stops_at_cap
    return emit(rows.sparse_softmax_cross_entropy_with_logits, labels, logits, stops_at_cap=stops, name=name)


distributed_sparse_softmax_cross_entropy_with_logits = sparse_softmax_cross_entropy_with_logits


def sparse_cross_entropy(labels: Blob, prediction: Blob, name: str | None = None) -> Blob:
    """-log(max(prediction[label], 1e-20)) a sample; ``prediction`` holds probabilities."""
    return emit(rows.sparse_cross_entropy, labels, prediction, name=name)


def softmax_cross_entropy_with_logits(labels: Blob, logits: Blob, name: str | None = None) -> Blob:
    """Cross entropy of softmax(logits) against soft labels that sum to 1, over the last dimension.

    ``labels`` have the shape and dtype of ``logits`` and get no gradient. The gradient of the logits is softmax -
    labels.
    """
    return emit(rows.softmax_cross_entropy_with_logits, labels, logits, name=name)


def sigmoid_cross_entropy_with_logits(labels: Blob, logits: Blob, name: str | None = None) -> Blob:
    """Binary cross entropy of sigmoid(logits), element by element. ``labels`` may be integers and get no gradient."""
    return emit(rows.sigmoid_cross_entropy_with_logits, labels, logits, name=name)


def smooth_l1_loss(prediction: Blob, label: Blob, beta: float = 1.0, name: str | None = None) -> Blob:
    """d² / (2 · beta) where |d| < beta, else |d| - beta / 2, for d = prediction - label; not reduced."""
    return emit(rows.smooth_l1_loss, prediction, label, name=name, beta=number("beta", beta))


def L1Loss(input: Blob, target: Blob, reduction: str = "mean", name: str | None = None) -> Blob:
    """|input - target|."""
    return emit(rows.l1_loss, input, target, name=name, reduction=reduction)


def MSELoss(input: Blob, target: Blob, reduction: str = "mean", name: str | None = None) -> Blob:
    """(input - target)²."""
    return emit(rows.mse_loss, input, target, name=name, reduction=reduction)


def BCELoss(
    input: Blob, target: Blob, weight: Blob | None = None, reduction: str = "mean", name: str | None = None
) -> Blob:
    """Binary cross entropy of probabilities; ``weight`` scales each element."""
    return emit(rows.bce_loss, input, target, weight, name=name, reduction=reduction)


def BCEWithLogitsLoss(
    input: Blob,
    target: Blob,
    weight: Blob | None = None,
    pos_weight: Blob | None = None,
    reduction: str = "mean",
    name: str | None = None,
) -> Blob:
    """Binary cross entropy of sigmoid(input); ``pos_weight`` scales the positive part."""
    return emit(rows.bce_with_logits_loss, input, target, weight, pos_weight, name=name, reduction=reduction)


def KLDivLoss(
    input: Blob, target: Blob, log_target: bool = False, reduction: str = "mean", name: str | None = None
) -> Blob:
    """target · (log(target) - input): ``input`` holds log probabilities, with ``log_target`` ``target`` too."""
    return emit(
        rows.kl_div_loss, input, target, name=name, log_target=flag("log_target", log_target), reduction=reduction
    )


def MarginRankingLoss(
    input1: Blob, input2: Blob, target: Blob, margin: float = 0.0, reduction: str = "mean", name: str | None = None
) -> Blob:
    """max(0, -target · (input1 - input2) + margin), target 1 or -1."""
    return emit(
        rows.margin_ranking_loss,
        input1,
        input2,
        target,
        name=name,
        margin=number("margin", margin),
        reduction=reduction,
    )


def TripletMarginLoss(
    anchor: Blob,
    positive: Blob,
    negative: Blob,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
    name: str | None = None,
) -> Blob:
    """max(0, |anchor - positive| - |anchor - negative| + margin), p-norms over the last dimension.

    ``swap`` takes |positive - negative| instead where it is the smaller distance.
    """
    return emit(
        rows.triplet_margin_loss,
        anchor,
        positive,
        negative,
        name=name,
        margin=number("margin", margin),
        p=number("p", p),
        epsilon=number("eps", eps),
        swap=flag("swap", swap),
        reduction=reduction,
    )
