"""``flow.nn.functional``: losses in OneFlow's order of parameters; torch's ``size_average`` and ``reduce`` only by
name.

Classes (targets, labels) are integers of any width, where torch takes int64 alone.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from oneflow.engine.core.errors import ArgumentError, DTypeError
from oneflow.engine.global_tensor.constants import local_constants


def indices(target: Tensor) -> Tensor:
    """Class numbers as int64; probabilities as they are."""
    return target if target.dtype == torch.int64 or target.is_floating_point() else target.to(torch.int64)


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    *,
    size_average: bool | None = None,
    reduce: bool | None = None,
) -> Tensor:
    """Cross entropy of softmax(``input``), classes along dimension 1, against class numbers or probabilities."""
    return functional.cross_entropy(
        input, indices(target), weight, size_average, ignore_index, reduce, reduction, label_smoothing
    )


def sparse_softmax_cross_entropy(labels: Tensor, logits: Tensor) -> Tensor:
    """-log of the softmax probability of each label, unreduced: ``labels`` has the shape of ``logits`` without its last
    dimension."""
    if labels.is_floating_point() or labels.is_complex():
        raise DTypeError(
            f"sparse_softmax_cross_entropy: labels are class numbers, got {labels.dtype}; the order is (labels, logits)"
        )
    if labels.shape != logits.shape[:-1]:
        raise ArgumentError(
            f"sparse_softmax_cross_entropy: labels have the shape of logits without the last dimension, "
            f"got labels {tuple(labels.shape)} and logits {tuple(logits.shape)}"
        )
    return -torch.log_softmax(logits, -1).gather(-1, indices(labels).unsqueeze(-1)).squeeze(-1)


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    *,
    size_average: bool | None = None,
    reduce: bool | None = None,
) -> Tensor:
    """Binary cross entropy of probabilities."""
    return functional.binary_cross_entropy(input, target, weight, size_average, reduce, reduction)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
    *,
    size_average: bool | None = None,
    reduce: bool | None = None,
) -> Tensor:
    """Binary cross entropy of sigmoid(``input``); ``pos_weight`` scales the positive part."""
    return functional.binary_cross_entropy_with_logits(
        input, target, weight, size_average, reduce, reduction, pos_weight
    )


def kl_div(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    log_target: bool = False,
    *,
    size_average: bool | None = None,
    reduce: bool | None = None,
) -> Tensor:
    """target · (log(target) - input); the mean is over all elements, as in torch, which warns of it."""
    if reduction != "mean" or size_average is not None or reduce is not None:
        return functional.kl_div(input, target, size_average, reduce, reduction, log_target)
    return functional.kl_div(input, target, reduction="none", log_target=log_target).mean()


def l1_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    *,
    size_average: bool | None = None,
    reduce: bool | None = None,
) -> Tensor:
    """|input - target|."""
    return functional.l1_loss(input, target, size_average, reduce, reduction)


def mse_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    *,
    size_average: bool | None = None,
    reduce: bool | None = None,
) -> Tensor:
    """(input - target)²."""
    return functional.mse_loss(input, target, size_average, reduce, reduction)


def combined_margin(x: Tensor, label: Tensor, m1: float, m2: float, m3: float) -> Tensor:
    """The cosines ``x`` (N, classes) with that of each label made cos(m1 · θ + m2) - m3; ``label`` has N elements."""
    chosen = indices(label).reshape(-1, 1)
    cosine = x.gather(1, chosen)
    if (m1, m2) != (1.0, 0.0):  # θ has no finite gradient at a cosine of 1, so it is left out where it does nothing
        cosine = torch.cos(m1 * torch.acos(cosine) + m2)
    return x.scatter(1, chosen, cosine - m3)


def one_hot(input: Tensor, num_classes: int = -1, on_value: float = 1, off_value: float = 0) -> Tensor:
    """Returns rows with ``on_value`` at the class and ``off_value`` elsewhere, for classes of any integer type."""
    with local_constants():  # torch compares with an arange of its own
        rows = functional.one_hot(indices(input), num_classes)
    return rows if (on_value, off_value) == (1, 0) else torch.where(rows == 1, on_value, off_value)


def ctc_greedy_decoder(log_probs: Tensor, input_lengths: Tensor, merge_repeated: bool = True) -> tuple[Tensor, Tensor]:
    """The best class of each time step of (T, N, C), up to each sequence's length, without blanks (class 0).

    With ``merge_repeated`` equal neighbours count once. Gives int64 (N, T), zeros behind each sequence, and (N, 1) with
    the sum of the negated best scores.
    """
    steps, batch = _ctc_sizes(log_probs, input_lengths)
    scores, best = log_probs.max(dim=2)
    valid = torch.arange(steps, device=best.device).unsqueeze(1) < input_lengths.to(best.device)
    kept = valid & (best != 0)
    if merge_repeated:
        kept[1:] &= best[1:] != best[:-1]
    first = torch.argsort(~kept, dim=0, stable=True)  # the kept ones in their order, then the others
    decoded = torch.where(kept, best, 0).gather(0, first).t().contiguous()
    return decoded, -torch.where(valid, scores, 0).sum(0).reshape(batch, 1)


def _ctc_sizes(log_probs: Tensor, lengths: Tensor) -> tuple[int, int]:
    if log_probs.dim() != 3 or tuple(lengths.shape) != (log_probs.shape[1],):
        raise ArgumentError(
            f"ctc_greedy_decoder: log_probs is (time, batch, classes) and input_lengths (batch,), "
            f"got {tuple(log_probs.shape)} and {tuple(lengths.shape)}"
        )
    if lengths.numel() and not (0 <= int(lengths.min()) and int(lengths.max()) <= log_probs.shape[0]):
        raise ArgumentError(
            f"ctc_greedy_decoder: input_lengths are from 0 to {log_probs.shape[0]}, got {lengths.tolist()}"
        )
    return log_probs.shape[0], log_probs.shape[1]
