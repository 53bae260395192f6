"""The step clock of a traced job: its counter, and loss scale, lie among the session's variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from oneflow.engine.job.traced import Traced
from oneflow.engine.step.step_clock import RunningScale, StepClock
from oneflow.optimizer.loss_scale import LossScale


def step_clock(job: Traced, rates: Sequence[Callable[[int], float]], host: Mapping[str, torch.Tensor]) -> StepClock:
    """The clock of a job whose rates are functions of the step; ``host`` has the session's numbers by name."""
    count = host[job.counter_name] if job.graph.is_train else job.calls
    training = job.graph.training
    loss_scale = training.loss_scale if training is not None else LossScale()
    name, good = job.loss_scale_names
    return StepClock(
        count, rates, RunningScale(loss_scale, (host[name], host[good]) if loss_scale.is_dynamic else None)
    )
