"""The training of a classifier: LiBai's loop over a graph's steps."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from torch import Tensor

import oneflow as flow
from fastnn.checkpoints import RunState
from fastnn.graphs import TrainGraph
from fastnn.moving_average import MovingAverage
from fastnn.utils.dataset_utils import DatasetIterator, Share, require_labels
from fastnn.utils.hooks_utils import StopAtStepHook
from libai.engine.hooks import HookBase
from libai.engine.trainer import TrainerBase


class ClassifierTrainer(TrainerBase):
    """Steps of ``graph`` over the batches of ``iterator``. ``average`` is moved on after each."""

    def __init__(
        self,
        graph: TrainGraph,
        iterator: DatasetIterator,
        schedule: Any,
        share: Share,
        device: str,
        num_classes: int,
        state: RunState,
        average: MovingAverage | None = None,
    ) -> None:
        super().__init__()
        self._graph, self._iterator, self._schedule = graph, iterator, schedule
        self._share, self._device, self._classes = share, device, num_classes
        self._state, self._average = state, average
        self._outputs: tuple[Tensor, Tensor] | None = None

    @property
    def is_chief(self) -> bool:
        """Whether this is the worker that logs and saves."""
        return self._share.worker == 0

    @property
    def is_finished(self) -> bool:
        """Whether every step was done."""
        return self.iter >= self.max_iter

    def run(self, hooks: Sequence[HookBase]) -> int:
        """Trains until a ``StopAtStepHook`` says so, or until the data ends. Gives the number of steps done."""
        self.register_hooks(hooks)
        ends = [hook.last_step for hook in hooks if isinstance(hook, StopAtStepHook)]
        steps = self._iterator.steps
        before = self._state.step
        self.train(before, min([*ends, sys.maxsize if steps is None else steps]))
        return self._state.step - before

    def run_step(self) -> None:
        """One batch."""
        images, labels = next(self._iterator)
        require_labels(labels, self._classes)
        self._outputs = self._graph(
            placed(images, self._share, self._device), placed(labels, self._share, self._device)
        )
        self._state.step = self.iter + 1
        if self._average is not None:
            self._average.update(self._state.step)

    def log_error(self, error: Exception) -> None:
        """Logs nothing: the program prints the error once, when it ends."""

    def told(self) -> dict[str, float]:
        """Loss, accuracy and rate of the last step, and its number. All workers call it together."""
        assert self._outputs is not None
        loss, accuracy = (value.item() for value in self._outputs)
        rate = self._schedule.rates(self.iter)[0]
        values = {"loss": loss, "accuracy": accuracy, "lrate": rate, "global_step": self.iter + 1}
        self.storage.put_scalars(loss=loss, accuracy=accuracy, lrate=rate, smoothing_hint=False)
        return values

    def samples_after(self, iteration: int) -> int:
        return (iteration + 1) * self._iterator.batch_size * self._share.workers


def placed(batch: Tensor, share: Share, device: str) -> Tensor:
    """A worker's batch as the graph takes it: on its device, and of several workers as a part of theirs."""
    batch = batch.to(device) if device != "cpu" else batch
    if share.workers == 1:
        return batch
    return batch.to_global(flow.placement.all(device), flow.sbp.split(0))  # type: ignore[attr-defined]
