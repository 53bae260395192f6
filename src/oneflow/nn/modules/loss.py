"""``flow.nn.modules.loss``: losses as modules, in OneFlow's order of parameters; torch's ``size_average`` and
``reduce`` only by name.

Names that are functions in jobs are those there (``core/eras.py``): ``flow.nn.MSELoss(a, b)`` inside a job is the op.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import CTCLoss, Module

from oneflow.compat.eras import EitherClass
from oneflow.engine.core.errors import ArgumentError
from oneflow.nn import _loss as jobs
from oneflow.nn.functional import cross_entropy, kl_div
from oneflow.nn.functional._loss import combined_margin, indices

__all__ = [
    "BCELoss",
    "BCEWithLogitsLoss",
    "CTCLoss",
    "CombinedMarginLoss",
    "CrossEntropyLoss",
    "KLDivLoss",
    "L1Loss",
    "MSELoss",
    "MarginRankingLoss",
    "NLLLoss",
    "SmoothL1Loss",
    "TripletMarginLoss",
]

_REDUCTIONS = ("mean", "sum", "none")


def _reduction(kind: str, reduction: Any) -> str:
    if not isinstance(reduction, str) or reduction not in _REDUCTIONS:
        raise ArgumentError(f"{kind}: reduction is one of {', '.join(map(repr, _REDUCTIONS))}; got {reduction!r}")
    return reduction


class L1Loss(torch.nn.L1Loss, metaclass=EitherClass):
    """|input - target|."""

    _of_job = staticmethod(jobs.L1Loss)
    _blobs = 2

    def __init__(
        self, reduction: str = "mean", *, size_average: bool | None = None, reduce: bool | None = None
    ) -> None:
        super().__init__(size_average, reduce, _reduction("L1Loss", reduction))


class MSELoss(torch.nn.MSELoss, metaclass=EitherClass):
    """(input - target)²."""

    _of_job = staticmethod(jobs.MSELoss)
    _blobs = 2

    def __init__(
        self, reduction: str = "mean", *, size_average: bool | None = None, reduce: bool | None = None
    ) -> None:
        super().__init__(size_average, reduce, _reduction("MSELoss", reduction))


class BCELoss(torch.nn.BCELoss, metaclass=EitherClass):
    """Binary cross entropy of probabilities; ``weight`` scales each element."""

    _of_job = staticmethod(jobs.BCELoss)
    _blobs = 2

    def __init__(
        self,
        weight: Tensor | None = None,
        reduction: str = "mean",
        *,
        size_average: bool | None = None,
        reduce: bool | None = None,
    ) -> None:
        super().__init__(weight, size_average, reduce, _reduction("BCELoss", reduction))


class BCEWithLogitsLoss(torch.nn.BCEWithLogitsLoss, metaclass=EitherClass):
    """Binary cross entropy of sigmoid(input); ``pos_weight`` scales the positive part."""

    _of_job = staticmethod(jobs.BCEWithLogitsLoss)
    _blobs = 2

    def __init__(
        self,
        weight: Tensor | None = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
        *,
        size_average: bool | None = None,
        reduce: bool | None = None,
    ) -> None:
        super().__init__(weight, size_average, reduce, _reduction("BCEWithLogitsLoss", reduction), pos_weight)


class KLDivLoss(torch.nn.KLDivLoss, metaclass=EitherClass):
    """target · (log(target) - input): ``input`` holds log probabilities, with ``log_target`` ``target`` too."""

    _of_job = staticmethod(jobs.KLDivLoss)
    _blobs = 2

    def __init__(
        self,
        reduction: str = "mean",
        log_target: bool = False,
        *,
        size_average: bool | None = None,
        reduce: bool | None = None,
    ) -> None:
        known = reduction if reduction == "batchmean" else _reduction("KLDivLoss", reduction)
        super().__init__(size_average, reduce, known, log_target)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return kl_div(input, target, self.reduction, self.log_target)


class MarginRankingLoss(torch.nn.MarginRankingLoss, metaclass=EitherClass):
    """max(0, -target · (input1 - input2) + margin), target 1 or -1."""

    _of_job = staticmethod(jobs.MarginRankingLoss)
    _blobs = 3

    def __init__(
        self,
        margin: float = 0.0,
        reduction: str = "mean",
        *,
        size_average: bool | None = None,
        reduce: bool | None = None,
    ) -> None:
        super().__init__(margin, size_average, reduce, _reduction("MarginRankingLoss", reduction))


class TripletMarginLoss(torch.nn.TripletMarginLoss, metaclass=EitherClass):
    """max(0, |anchor - positive| - |anchor - negative| + margin), p-norms over the last dimension. The parameters are
    torch's."""

    _of_job = staticmethod(jobs.TripletMarginLoss)
    _blobs = 3


class CrossEntropyLoss(torch.nn.CrossEntropyLoss):
    """Cross entropy of softmax(input) against class numbers of any integer type, or probabilities."""

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        *,
        size_average: bool | None = None,
        reduce: bool | None = None,
    ) -> None:
        super().__init__(
            weight, size_average, ignore_index, reduce, _reduction("CrossEntropyLoss", reduction), label_smoothing
        )

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return cross_entropy(input, target, self.weight, self.ignore_index, self.reduction, self.label_smoothing)


class NLLLoss(torch.nn.NLLLoss):
    """-input[target] of log probabilities; ``target`` is of any integer type."""

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        *,
        size_average: bool | None = None,
        reduce: bool | None = None,
    ) -> None:
        super().__init__(weight, size_average, ignore_index, reduce, _reduction("NLLLoss", reduction))

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return super().forward(input, indices(target))


class SmoothL1Loss(torch.nn.SmoothL1Loss):
    """d² / (2 · beta) where |d| < beta, else |d| - beta / 2, for d = input - target."""

    def __init__(
        self,
        reduction: str = "mean",
        beta: float = 1.0,
        *,
        size_average: bool | None = None,
        reduce: bool | None = None,
    ) -> None:
        super().__init__(size_average, reduce, _reduction("SmoothL1Loss", reduction), beta)


class CombinedMarginLoss(Module):
    """The margins of face recognition: of the cosines (N, classes) that of the label becomes cos(m1 · θ + m2) - m3.

    Not reduced: what comes out are cosines again, for a scale and a cross entropy. ``label`` is (N,), of any integer
    type.
    """

    def __init__(self, m1: float = 1.0, m2: float = 0.0, m3: float = 0.0) -> None:
        super().__init__()
        self.m1, self.m2, self.m3 = m1, m2, m3

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        if x.dim() != 2 or tuple(label.shape) != (x.shape[0],):
            raise ArgumentError(
                f"CombinedMarginLoss takes cosines (batch, classes) and labels (batch,), got {tuple(x.shape)} and "
                f"{tuple(label.shape)}"
            )
        return combined_margin(x, label, self.m1, self.m2, self.m3)

    def extra_repr(self) -> str:
        return f"m1={self.m1}, m2={self.m2}, m3={self.m3}"
