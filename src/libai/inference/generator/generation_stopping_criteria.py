"""When generation ends, besides the end of every text."""

from __future__ import annotations

import copy
import time
import warnings
from typing import Any

import torch
from torch import Tensor


class StoppingCriteriaList(list[Any]):
    """Criteria; generation ends as soon as one of them holds. A criterion gives a bool, or a tensor of one for each
    row."""

    def __call__(self, input_ids: Tensor, scores: Any = None, **kwargs: Any) -> bool:
        done = torch.zeros(len(input_ids), dtype=torch.bool)
        for criterion in self:
            found = criterion(input_ids, scores, **kwargs)
            done |= found.bool().cpu() if isinstance(found, Tensor) else bool(found)
        return bool(done.all())

    @property
    def max_length(self) -> int | None:
        """The length that one of the criteria allows."""
        return next((one.max_length for one in self if isinstance(one, MaxLengthCriteria)), None)


class MaxLengthCriteria:
    """``max_length`` tokens are there, those of the prompt included."""

    def __init__(self, max_length: int) -> None:
        self.max_length = max_length

    def __call__(self, input_ids: Tensor, scores: Any = None, **kwargs: Any) -> bool:
        return input_ids.shape[-1] >= self.max_length


class MaxTimeCriteria:
    """``max_time`` seconds are over, from ``initial_timestamp`` on, or from when it was made."""

    def __init__(self, max_time: float, initial_timestamp: float | None = None) -> None:
        self.max_time = max_time
        self.initial_timestamp = time.time() if initial_timestamp is None else initial_timestamp

    def __call__(self, input_ids: Tensor, scores: Any = None, **kwargs: Any) -> bool:
        return time.time() - self.initial_timestamp > self.max_time


def validate_stopping_criteria(stopping_criteria: StoppingCriteriaList, max_length: int) -> StoppingCriteriaList:
    """A copy of the criteria that ends at ``max_length``; a warning says where they have another length, which then
    counts."""
    found = copy.copy(stopping_criteria)
    if found.max_length is None:
        found.append(MaxLengthCriteria(max_length))
    elif found.max_length != max_length:
        warnings.warn(
            f"the stopping criteria end at {found.max_length} tokens, max_length is {max_length}: {found.max_length} "
            f"counts",
            UserWarning,
            stacklevel=2,
        )
    return found
