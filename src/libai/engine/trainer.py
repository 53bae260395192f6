"""The loop of training: ten lines, and hooks for all else."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import oneflow as flow
from libai.data import Instance
from libai.data.structures import DistTensorData
from libai.engine.precision import MixedPrecision
from libai.models.utils.graph_base import total_loss
from libai.utils import distributed as dist
from libai.utils.events import EventStorage, get_event_storage
from oneflow import nn
from oneflow.engine.core.errors import ArgumentError, DTypeError

_log = logging.getLogger(__name__)


class HookBase:
    """Something that is done around the steps of a trainer, which is ``self.trainer``.

    ``before_train``, then for each iteration ``before_step``, the step, ``after_step``; at the end, also after an
    error, ``after_train``.
    """

    trainer: Any = None

    def before_train(self) -> None:
        """Called before the first iteration."""

    def after_train(self) -> None:
        """Called after the last iteration, and after an error."""

    def before_step(self) -> None:
        """Called before each iteration."""

    def after_step(self) -> None:
        """Called after each iteration."""


class TrainerBase:
    """The loop. A class of one's own says what a step is in ``run_step``; ``iter`` is the present iteration,
    ``storage`` keeps what it puts."""

    def __init__(self) -> None:
        self._hooks: list[HookBase] = []
        self.iter = 0
        self.start_iter = 0
        self.max_iter = 0
        self._is_in_step = False
        self.storage: EventStorage = EventStorage()

    def register_hooks(self, hooks: Sequence[HookBase | None]) -> None:
        """Adds hooks; they are called in the order of registration."""
        for hook in hooks:
            if hook is None:
                continue
            if not isinstance(hook, HookBase):
                raise DTypeError(f"a hook is a libai.engine.hooks.HookBase, got {type(hook).__name__}")
            hook.trainer = weakref.proxy(self)  # the trainer has the hook: together they would never be freed
            self._hooks.append(hook)

    def train(self, start_iter: int, max_iter: int) -> Any:
        """Runs the iterations from ``start_iter`` up to, but not including, ``max_iter``."""
        _log.info("Starting training from iteration %d", start_iter)
        self.iter = self.start_iter = start_iter
        self.max_iter = max_iter
        with EventStorage(start_iter) as self.storage:
            try:
                self.before_train()
                while self.iter < self.max_iter:
                    self._is_in_step = True
                    self.before_step()
                    self.run_step()
                    self.after_step()
                    self._is_in_step = False
                    self.iter += 1
            except Exception as error:
                self.log_error(error)
                raise
            finally:
                self._is_in_step = False
                self.after_train()

    def log_error(self, error: Exception) -> None:
        """Logs an exception that ends the run. Programs that report errors themselves override it."""
        _log.error("Exception during training:", exc_info=error)
        vars(error)["is_logged"] = True  # a program that ends by it need not print it again

    def stop(self) -> None:
        """Ends the run after the current iteration, as if ``max_iter`` had been reached.

        The remaining hooks of the iteration see the new ``max_iter``. The final evaluation runs, ``model_final`` is
        written and every ``after_train`` is called. ``--resume`` continues such a run up to ``train.train_iter``. Called
        in ``before_train``, no iteration runs.

        On several ranks, every rank must call it in the same iteration. A hook that decides by a metric gets the same
        value on every rank from :func:`libai.engine.hooks.latest_metric`.

        Example::

            class StopWhenGood(HookBase):
                def after_step(self):
                    latest = latest_metric(self.trainer.storage, "Acc@1")
                    if latest is not None and latest[0] > 99:
                        self.trainer.stop()
        """
        self.max_iter = min(self.max_iter, self.iter + self._is_in_step)

    def before_train(self) -> None:
        """Calls the hooks."""
        for hook in self._hooks:
            hook.before_train()

    def after_train(self) -> None:
        """Calls the hooks."""
        self.storage.iter = self.iter
        for hook in self._hooks:
            hook.after_train()

    def before_step(self) -> None:
        """Calls the hooks."""
        self.storage.iter = self.iter
        for hook in self._hooks:
            hook.before_step()

    def after_step(self) -> None:
        """Calls the hooks."""
        self.storage.samples = self.samples_after(self.iter)
        for hook in self._hooks:
            hook.after_step()

    def samples_after(self, iteration: int) -> int:
        """How many samples all ranks together have used when this iteration is done."""
        return 0

    def run_step(self) -> None:
        """One iteration."""
        raise NotImplementedError(f"{type(self).__name__} has to define run_step()")

    @staticmethod
    def write_metrics(loss_dict: Mapping[str, Any], data_time: float, prefix: str = "") -> None:
        """Puts the losses and other numbers of a step into the storage, and their sum as ``total_loss``. All ranks come
        here; rank 0 has the numbers."""
        values = _on_rank_0(loss_dict)
        if not dist.is_main_process():
            return
        storage = get_event_storage()
        storage.put_scalar("data_time", data_time)
        storage.put_scalar(f"{prefix}total_loss", sum(value for name, value in values.items() if "loss" in name))
        if len(values) > 1:
            for name, value in values.items():
                storage.put_scalar(f"{prefix}{name}", value)


def _on_rank_0(values: Mapping[str, Any]) -> dict[str, float]:
    """Numbers by name. Those of global tensors come from their ranks to rank 0; elsewhere they mean nothing."""
    if dist.get_world_size() == 1:
        return {name: _number(name, value) for name, value in values.items()}
    moved = {name: dist.tensor_to_rank0(value, device="cpu", to_local=True) for name, value in values.items()}
    return {name: _number(name, value) if value.numel() else 0.0 for name, value in moved.items()}


def _number(name: str, value: Any) -> float:
    """A loss is the mean of those of its micro-batches; other values are added up."""
    if value.ndim == 0:
        return value.item()
    return (value.float().mean() if "loss" in name else value.sum()).item()


class _StepTrainer(TrainerBase):
    """What both kinds of training share: where batches come from."""

    def __init__(self, data_loader: Any, grad_acc_steps: int) -> None:
        super().__init__()
        self.data_loader = data_loader
        self._batches = iter(data_loader)
        self.grad_acc_steps = grad_acc_steps

    def _next_batch(
        self, micro_batches: int, get_batch: Callable[..., dict[str, Any]], device: str
    ) -> tuple[dict[str, Any], float]:
        """The fields of a batch as global tensors, and the seconds until the loader had it."""
        start = time.perf_counter()
        found = [next(self._batches) for _ in range(micro_batches)]
        data_time = time.perf_counter() - start
        batch = found[0] if micro_batches == 1 else concatenated(found)
        return get_batch(batch, device, getattr(self.data_loader, "mixup_func", None)), data_time


def concatenated(batches: Sequence[Instance]) -> Instance:
    """Batches as one, along dim 0 of every field."""
    first = batches[0]
    return Instance(**{name: _concatenated([batch.get(name) for batch in batches]) for name in first.get_fields()})


def _concatenated(fields: list[Any]) -> Any:
    if not isinstance(fields[0], DistTensorData):
        raise ArgumentError(
            f"batches are put together of DistTensorData, got {type(fields[0]).__name__}; give num_accumulation_steps=1"
        )
    tensors = flow.cat([field.tensor for field in fields], dim=0)
    return DistTensorData.of_batch(tensors, fields[0].sbp_list, fields[0].placement_idx)


class EagerTrainer(_StepTrainer):
    """Op by op: an iteration is a micro-batch, and every ``grad_acc_steps``-th one updates the parameters."""

    def __init__(
        self, model: nn.Module, data_loader: Any, optimizer: Any, grad_acc_steps: int = 1, amp: bool = False
    ) -> None:
        super().__init__(data_loader, grad_acc_steps)
        model.train()
        self.model = model
        self.optimizer = optimizer
        self.precision = MixedPrecision(model, amp)

    def run_step(self, get_batch: Callable[..., dict[str, Any]], input_placement_device: str = "cuda") -> None:  # type: ignore[override]
        """One micro-batch."""
        if not self.model.training:
            raise ArgumentError(
                "[SimpleTrainer] model was changed to eval mode! Call model.train() after an evaluation of your own"
            )
        data, data_time = self._next_batch(1, get_batch, input_placement_device)
        with self.precision.autocast():
            outputs = self.model(**data)
            losses = total_loss(outputs, self.model) / self.grad_acc_steps
        self.precision.scaled(losses).backward()
        self.write_metrics(outputs, data_time)
        if (self.iter + 1) % self.grad_acc_steps == 0:
            self._update()

    def _update(self) -> None:
        if self.precision.unscale(self.optimizer):
            if any(group.get("clip_grad_max_norm") is not None for group in self.optimizer.param_groups):
                self.optimizer.clip_grad()
            self.optimizer.step()
        self.optimizer.zero_grad()


class GraphTrainer(_StepTrainer):
    """By a graph: an iteration is a whole batch, forward, backward and update compiled as one."""

    def __init__(self, graph: Any, data_loader: Any, grad_acc_steps: int = 1) -> None:
        super().__init__(data_loader, grad_acc_steps)
        graph.model.train()
        self.graph = graph
        self.plan_file: str | None = None
        """Where the plan of the graph is written after the first batch."""

    def run_step(self, get_batch: Callable[..., dict[str, Any]], input_placement_device: str = "cuda") -> None:  # type: ignore[override]
        """One batch."""
        if not self.graph.model.training:
            raise ArgumentError(
                "[SimpleTrainer] model was changed to eval mode! Call model.train() after an evaluation of your own"
            )
        data, data_time = self._next_batch(self.grad_acc_steps, get_batch, input_placement_device)
        outputs = self.graph(**data)
        if not isinstance(outputs, Mapping):
            outputs = dict(outputs)
        self.write_metrics(outputs, data_time)
        if self.plan_file is not None:
            self._write_plan(data, self.plan_file)
            self.plan_file = None

    def _write_plan(self, data: dict[str, Any], path: str) -> None:
        try:
            self.graph.plan_step((), None, data).save(path)
        except Exception as error:  # a page to look at: no reason to end a run
            _log.warning("the plan of the graph cannot be written to %s: %s: %s", path, type(error).__name__, error)
