"""The gradient of the cross entropy of logits and class numbers in one pass: softmax minus one-hot, scaled.

Torch's own way writes a tensor of zeros as large as the logits, with one number per row, and goes through it again.
"""

from __future__ import annotations

import torch
from torch import Tensor

_BYTES = 2**19  # of rows that are worked on while they are in the cache
_MEAN = 1


def _cross_entropy_backward_(
    log_softmax: Tensor, gradient: Tensor, target: Tensor, reduction: int, ignore_index: int, total_weight: Tensor
) -> Tensor:
    """Writes the gradient of the logits over their log-softmax. ``reduction`` and ``total_weight`` are those of torch's
    nll_loss."""
    scale = gradient / total_weight if reduction == _MEAN else gradient
    scale = torch.where(target == ignore_index, 0.0, scale).to(log_softmax.dtype).unsqueeze(1)
    target = target.clamp(min=0).unsqueeze(1)
    rows = max(1, _BYTES // max(1, log_softmax.shape[1] * log_softmax.itemsize))
    for part, own, classes in zip(log_softmax.split(rows), scale.split(rows), target.split(rows)):
        part.exp_().mul_(own).scatter_add_(1, classes, own.neg())
    return log_softmax


def _cross_entropy_backward(
    log_softmax: Tensor, gradient: Tensor, target: Tensor, reduction: int, ignore_index: int, total_weight: Tensor
) -> Tensor:
    return _cross_entropy_backward_(log_softmax.clone(), gradient, target, reduction, ignore_index, total_weight)


# The library object must live as long as the op is registered.
_LIBRARY = torch.library.Library("oneflow", "FRAGMENT")
_ARGUMENTS = "Tensor gradient, Tensor target, int reduction, int ignore_index, Tensor total_weight"
_LIBRARY.define(f"cross_entropy_backward(Tensor log_softmax, {_ARGUMENTS}) -> Tensor")
_LIBRARY.define(f"cross_entropy_backward_(Tensor(a!) log_softmax, {_ARGUMENTS}) -> Tensor(a!)")
_LIBRARY.impl("cross_entropy_backward", _cross_entropy_backward, "CompositeExplicitAutograd")
_LIBRARY.impl("cross_entropy_backward_", _cross_entropy_backward_, "CompositeExplicitAutograd")
