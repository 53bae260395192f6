"""The training loop, with hooks for everything around the steps."""

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
_IN_EVAL_MODE = "model was changed to eval mode! Call model.train() after evaluating it yourself"


class HookBase:
    """Base class of hooks, which run around the steps of ``self.trainer``.

    The trainer calls ``before_train``, then ``before_step`` and ``after_step`` around each iteration, and at the end,
    also after an error, ``after_train``.
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
    """The training loop. Subclasses implement ``run_step``.

    Attributes:
        iter: The current iteration.
        start_iter: The first iteration of this process, above 0 in a resumed run.
        max_iter: The number of iterations of the run; ``stop`` lowers it.
        storage: The metrics of the run.
    """

    def __init__(self) -> None:
        self._hooks: list[HookBase] = []
        self.iter = 0
        self.start_iter = 0
        self.max_iter = 0
        self._is_in_step = False
        self.storage: EventStorage = EventStorage()

    def register_hooks(self, hooks: Sequence[HookBase | None]) -> None:
        """Adds hooks, which are called in the order of registration. None entries are skipped."""
        for hook in hooks:
            if hook is None:
                continue
            if not isinstance(hook, HookBase):
                raise DTypeError(f"a hook is a libai.engine.hooks.HookBase, got {type(hook).__name__}")
            hook.trainer = weakref.proxy(self)  # a strong reference would be a cycle
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
        """Calls ``before_train`` of the hooks."""
        for hook in self._hooks:
            hook.before_train()

    def after_train(self) -> None:
        """Calls ``after_train`` of the hooks."""
        self.storage.iter = self.iter
        for hook in self._hooks:
            hook.after_train()

    def before_step(self) -> None:
        """Calls ``before_step`` of the hooks."""
        self.storage.iter = self.iter
        for hook in self._hooks:
            hook.before_step()

    def after_step(self) -> None:
        """Calls ``after_step`` of the hooks."""
        self.storage.samples = self.samples_after(self.iter)
        for hook in self._hooks:
            hook.after_step()

    def samples_after(self, iteration: int) -> int:
        """Returns the number of samples that all ranks together have used after this iteration."""
        return 0

    def run_step(self) -> None:
        """Runs one iteration."""
        raise NotImplementedError(f"{type(self).__name__} has to define run_step()")

    @staticmethod
    def write_metrics(loss_dict: Mapping[str, Any], data_time: float, prefix: str = "") -> None:
        """Puts the values of a step into the storage, and the sum of the losses as ``total_loss``.

        All ranks must call it; only rank 0 stores the values.

        Args:
            loss_dict: Tensors by name. Those with ``loss`` in their name are losses.
            data_time: The seconds spent waiting for data.
            prefix: A prefix of the names.
        """
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
    """Returns numbers by name; on several ranks they are valid on rank 0 only."""
    if dist.get_world_size() == 1:
        return {name: _number(name, value) for name, value in values.items()}
    moved = {name: dist.tensor_to_rank0(value, device="cpu", to_local=True) for name, value in values.items()}
    return {name: _number(name, value) if value.numel() else 0.0 for name, value in moved.items()}


def _number(name: str, value: Any) -> float:
    """Averages the losses of micro-batches, and sums other values."""
    if value.ndim == 0:
        return value.item()
    return (value.float().mean() if "loss" in name else value.sum()).item()


class _StepTrainer(TrainerBase):
    """Fetches batches for eager and graph training."""

    def __init__(self, data_loader: Any, grad_acc_steps: int) -> None:
        super().__init__()
        self.data_loader = data_loader
        self._batches = iter(data_loader)
        self.grad_acc_steps = grad_acc_steps

    def _next_batch(
        self, micro_batches: int, get_batch: Callable[..., dict[str, Any]], device: str
    ) -> tuple[dict[str, Any], float]:
        """Returns the fields of a batch as global tensors, and the seconds spent waiting for the loader."""
        start = time.perf_counter()
        batches = [next(self._batches) for _ in range(micro_batches)]
        data_time = time.perf_counter() - start
        batch = batches[0] if micro_batches == 1 else concatenated(batches)
        return get_batch(batch, device, getattr(self.data_loader, "mixup_func", None)), data_time


def concatenated(batches: Sequence[Instance]) -> Instance:
    """Concatenates batches along dim 0 of every field."""
    first = batches[0]
    return Instance(**{name: _concatenated([batch.get(name) for batch in batches]) for name in first.get_fields()})


def _concatenated(fields: list[Any]) -> Any:
    if not isinstance(fields[0], DistTensorData):
        raise ArgumentError(
            f"only DistTensorData fields can be concatenated, got {type(fields[0]).__name__}; set "
            f"train.num_accumulation_steps=1"
        )
    tensors = flow.cat([field.tensor for field in fields], dim=0)
    return DistTensorData.of_batch(tensors, fields[0].sbp_list, fields[0].placement_idx)


class EagerTrainer(_StepTrainer):
    """Trains op by op: an iteration is a micro-batch; every ``grad_acc_steps``-th one updates the parameters."""

    def __init__(
        self, model: nn.Module, data_loader: Any, optimizer: Any, grad_acc_steps: int = 1, amp: bool = False
    ) -> None:
        super().__init__(data_loader, grad_acc_steps)
        model.train()
        self.model = model
        self.optimizer = optimizer
        self.precision = MixedPrecision(model, amp)

    def run_step(self, get_batch: Callable[..., dict[str, Any]], input_placement_device: str = "cuda") -> None:  # type: ignore[override]
        """Trains on one micro-batch."""
        if not self.model.training:
            raise ArgumentError(f"{type(self).__name__}: {_IN_EVAL_MODE}")
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
    """Trains with a graph: an iteration is a whole batch; forward, backward and update are compiled together."""

    def __init__(self, graph: Any, data_loader: Any, grad_acc_steps: int = 1) -> None:
        super().__init__(data_loader, grad_acc_steps)
        graph.model.train()
        self.graph = graph
        self.plan_file: str | None = None
        """The file that the plan of the graph is written to after the first batch."""

    def run_step(self, get_batch: Callable[..., dict[str, Any]], input_placement_device: str = "cuda") -> None:  # type: ignore[override]
        """Trains on one batch."""
        if not self.graph.model.training:
            raise ArgumentError(f"{type(self).__name__}: {_IN_EVAL_MODE}")
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
        except Exception as error:  # the plan is for information only
            _log.warning("the plan of the graph cannot be written to %s: %s: %s", path, type(error).__name__, error)
