"""Cutting a data set into parts."""

from __future__ import annotations

from collections.abc import Sequence

from oneflow.core.errors import ArgumentError

_PARTS = 3


def get_train_valid_test_split_(size: int, splits: Sequence[float] | None = None) -> list[int]:
    """The four bounds of the parts for training, validation and test of ``size`` documents, by ratios; without ratios all are for training.

    Each part is rounded; what rounding adds or leaves over comes off every bound but the first.
    """
    ratios = [float(ratio) for ratio in (splits or [1.0])][:_PARTS]
    ratios += [0.0] * (_PARTS - len(ratios))
    if min(ratios) < 0 or sum(ratios) <= 0:
        raise ArgumentError(f"splits are three ratios, not negative and not all zero, got {splits!r}")
    bounds = [0]
    for ratio in ratios:
        bounds.append(bounds[-1] + round(ratio / sum(ratios) * size))
    over = bounds[-1] - size
    return [0, *(bound - over for bound in bounds[1:])]
