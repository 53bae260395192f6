"""How batches, accumulation and iterations hang together: arithmetic alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

from libai.config.errors import ConfigError


@dataclass(frozen=True)
class BatchSizes:
    """``global_batch == micro * steps * data``."""

    micro: int
    global_batch: int
    steps: int


def batch_sizes(micro: int | None, global_batch: int | None, steps: int | None, data: int) -> BatchSizes:
    """What is not given of train_micro_batch_size, global_batch_size and num_accumulation_steps, on ``data`` data
    parallel ranks."""
    if micro is None and global_batch is None:
        raise ConfigError(
            "train_micro_batch_size and global_batch_size must be set either: give one of the two keys of train"
        )
    if micro is None:
        assert global_batch is not None
        steps = steps or 1
        if global_batch % (data * steps):
            raise ConfigError(
                f"global_batch_size {global_batch} must be divisible by data_parallel_size * num_accumulation_steps "
                f"({data} * {steps}); "
                f"the next that is, is {_next(global_batch, data * steps)}"
            )
        return BatchSizes(global_batch // (data * steps), global_batch, steps)
    if global_batch is None:
        return BatchSizes(micro, micro * data * (steps or 1), steps or 1)
    if steps is None:
        if global_batch % (micro * data):
            raise ConfigError(
                f"global_batch_size {global_batch} must be divisible by train_micro_batch_size * data_parallel_size "
                f"({micro} * {data}); "
                f"the next that is, is {_next(global_batch, micro * data)}"
            )
        return BatchSizes(micro, global_batch, global_batch // (micro * data))
    if global_batch != micro * data * steps:
        raise ConfigError(
            f"global_batch_size {global_batch} must equal to train_micro_batch_size * data_parallel_size * "
            f"num_accumulation_steps "
            f"({micro} * {data} * {steps} = {micro * data * steps}); leave one of the three keys of train out"
        )
    return BatchSizes(micro, global_batch, steps)


def _next(size: int, unit: int) -> int:
    return math.ceil(size / unit) * unit


def iterations(train_iter: int, epochs: float, per_epoch: int | None, samples: int, global_batch: int) -> int:
    """How many batches a run has: ``train_iter``, or what ``epochs`` of a data set of ``samples`` need if that is
    more."""
    of_epochs = math.ceil(epochs * per_epoch) if per_epoch is not None else math.ceil(samples * epochs / global_batch)
    return max(of_epochs, train_iter)
