"""Hooks of the default trainer: timing, learning rate, checkpoints, evaluation, writers and signals."""

from __future__ import annotations

import datetime
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from libai.engine.stopping import StopSignal
from libai.engine.trainer import HookBase
from libai.evaluation import flatten_results_dict
from libai.utils import distributed as dist
from libai.utils.checkpoint import Checkpointer
from libai.utils.checkpoint import PeriodicCheckpointer as _PeriodicCheckpointer
from libai.utils.events import EventStorage, EventWriter
from oneflow.engine.core.errors import ArgumentError, DTypeError

__all__ = [
    "BestCheckpointer",
    "CallbackHook",
    "EvalHook",
    "HookBase",
    "IterationTimer",
    "LRScheduler",
    "PeriodicCheckpointer",
    "PeriodicWriter",
    "ProgressBar",
    "StopOnSignal",
    "latest_metric",
]

_log = logging.getLogger(__name__)


class CallbackHook(HookBase):
    """Calls functions with the trainer."""

    def __init__(
        self,
        *,
        before_train: Callable[[Any], None] | None = None,
        after_train: Callable[[Any], None] | None = None,
        before_step: Callable[[Any], None] | None = None,
        after_step: Callable[[Any], None] | None = None,
    ) -> None:
        self._before_train, self._after_train = before_train, after_train
        self._before_step, self._after_step = before_step, after_step

    def before_train(self) -> None:
        if self._before_train:
            self._before_train(self.trainer)

    def after_train(self) -> None:
        if self._after_train:
            self._after_train(self.trainer)
        # The functions often refer to the trainer, which would be a cycle.
        self._before_train = self._after_train = self._before_step = self._after_step = None

    def before_step(self) -> None:
        if self._before_step:
            self._before_step(self.trainer)

    def after_step(self) -> None:
        if self._after_step:
            self._after_step(self.trainer)


class IterationTimer(HookBase):
    """Stores the ``time`` of each iteration and logs the speed of the run.

    The first ``warmup_iter - 1`` iterations, which may compile, are not counted.
    """

    def __init__(self, warmup_iter: int = 3) -> None:
        self._warmup = warmup_iter
        self._start = self._step_start = time.perf_counter()
        self._in_steps = 0.0
        self._counted = 0

    def before_train(self) -> None:
        self._start = time.perf_counter()
        self._counted, self._in_steps = 0, 0.0

    def before_step(self) -> None:
        self._step_start = time.perf_counter()

    def after_step(self) -> None:
        now = time.perf_counter()
        if self.trainer.iter - self.trainer.start_iter + 1 >= self._warmup:
            self._counted += 1
            self._in_steps += now - self._step_start
            self.trainer.storage.put_scalar("time", now - self._step_start)
        else:
            self._start = now

    def after_train(self) -> None:
        total = time.perf_counter() - self._start
        if self._counted:
            _log.info(
                "Overall training speed: %d iterations in %s (%.4f s / it)",
                self._counted,
                _timedelta(self._in_steps),
                self._in_steps / self._counted,
            )
        _log.info(
            "Total training time: %s (%s on hooks)", _timedelta(total), _timedelta(max(0.0, total - self._in_steps))
        )


def _timedelta(seconds: float) -> datetime.timedelta:
    return datetime.timedelta(seconds=int(seconds))


class PeriodicWriter(HookBase):
    """Calls writers every ``period`` iterations, after the last one, and again after the final evaluation."""

    def __init__(self, writers: Sequence[EventWriter], period: int = 20) -> None:
        for writer in writers:
            if not isinstance(writer, EventWriter):
                raise DTypeError(f"a writer is a libai.utils.events.EventWriter, got {type(writer).__name__}")
        self._writers = list(writers)
        self._period = period

    def after_step(self) -> None:
        if (self.trainer.iter + 1) % self._period == 0 or self.trainer.iter == self.trainer.max_iter - 1:
            for writer in self._writers:
                writer.write()

    def after_train(self) -> None:
        for writer in self._writers:
            if self.trainer.iter >= self.trainer.max_iter:
                writer.write_end()
            writer.close()


class PeriodicCheckpointer(_PeriodicCheckpointer, HookBase):
    """Saves every ``period`` iterations and after the trainer's last one; ``max_iter`` is ignored."""

    def before_train(self) -> None:
        self.max_iter = None  # the trainer's value is used, which ``stop`` changes

    def after_step(self) -> None:
        self.step(self.trainer.iter)

    def after_train(self) -> None:
        if self.trainer.start_iter < self.trainer.iter and self.trainer.iter >= self.trainer.max_iter:
            self.save_final(self.trainer.iter - 1)


class EvalHook(HookBase):
    """Evaluates every ``eval_period`` iterations (0: never) and at the end, and stores the results.

    A run that was interrupted between a checkpoint and the evaluation due at that iteration evaluates first when it is
    resumed.
    """

    def __init__(self, eval_period: int, eval_function: Callable[[], Any]) -> None:
        self._period = eval_period
        self._function = eval_function
        self._evaluated: int | None = None
        self.results: Any = None

    def state_dict(self) -> dict[str, Any]:
        """Returns the iteration of the last evaluation."""
        return {"evaluated": self._evaluated}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what ``state_dict`` returned."""
        self._evaluated = state["evaluated"]

    def _evaluate(self) -> None:
        results = self._function()
        self.results = results
        self._evaluated = self.trainer.storage.iter
        if results:
            if not isinstance(results, dict):
                raise DTypeError(f"an evaluation returns a dictionary of numbers by name, got {type(results).__name__}")
            flat = flatten_results_dict(results)
            for name, value in flat.items():
                self.trainer.storage.put_scalar(name, _as_float(name, value), smoothing_hint=False)
        dist.synchronize()

    def before_train(self) -> None:
        done = self.trainer.start_iter
        if done and self._is_due(done) and self._evaluated not in (done - 1, done):  # done: at the end of a run
            self.trainer.storage.iter = done - 1
            self._evaluate()

    def _is_due(self, done: int) -> bool:
        return self._period > 0 and done % self._period == 0 and done != self.trainer.max_iter

    def after_step(self) -> None:
        if self._is_due(self.trainer.iter + 1):
            self._evaluate()

    def after_train(self) -> None:
        if self.trainer.iter < self.trainer.max_iter:
            return
        if self.results is None or self._evaluated != self.trainer.iter - 1:
            self._evaluate()
        self._evaluated = self.trainer.iter  # a stopped run may have been evaluated after its last iteration already


def _as_float(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ArgumentError(
            f"[EvalHook] eval_function should return a nested dict of float. Got {name!r} of {type(value).__name__}: "
            f"{value!r}"
        ) from None


def latest_metric(storage: EventStorage, name: str) -> tuple[float, int] | None:
    """Returns the latest value of a metric and its iteration, as rank 0 has them, on every rank.

    All ranks must call it together.

    Args:
        storage: The trainer's storage.
        name: The metric, such as ``"Acc@1"``. If several data sets are evaluated, their metrics have prefixed names,
            such as ``"CIFAR10Dataset/Acc@1"``; a name without prefix is that of the first data set.

    Returns:
        ``(value, iteration)``, or None if there is no such metric yet.
    """
    known = storage.latest()
    latest = known.get(name) or next((value for key, value in known.items() if key.endswith(f"/{name}")), None)
    return dist.broadcast_py_object(latest)


class BestCheckpointer(HookBase):
    """Saves ``file_prefix`` after each evaluation in which ``val_metric`` is better than ever before.

    :func:`latest_metric` looks the metric up.
    """

    def __init__(
        self,
        eval_period: int,
        checkpointer: Checkpointer,
        val_metric: str,
        mode: str = "max",
        file_prefix: str = "model_best",
    ) -> None:
        if mode not in ("max", "min"):
            raise ArgumentError(f"Mode {mode!r} to BestCheckpointer is unknown. It should be one of max, min")
        self._period = eval_period
        self._checkpointer = checkpointer
        self._metric, self._mode, self._prefix = val_metric, mode, file_prefix
        self.best: float | None = None
        self.best_iter: int | None = None

    def state_dict(self) -> dict[str, Any]:
        """Returns the best value so far and its iteration."""
        return {"best": self.best, "best_iter": self.best_iter, "metric": self._metric, "mode": self._mode}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what ``state_dict`` returned, unless it is of another metric or mode."""
        if (state.get("metric"), state.get("mode")) == (self._metric, self._mode):
            self.best, self.best_iter = state["best"], state["best_iter"]

    def before_train(self) -> None:
        latest = latest_metric(self.trainer.storage, self._metric)
        if latest is not None:  # EvalHook has made up for an evaluation that an earlier process missed
            self._check(latest)

    def _check(self, latest: tuple[float, int] | None) -> None:
        if latest is None:
            known = ", ".join(sorted(self.trainer.storage.latest()))
            _log.warning(
                "Given val metric %s does not seem to be computed/stored. Will not be checkpointed based on that; "
                "there are %s",
                self._metric,
                known,
            )
            return
        value, at = latest
        if self.best is None:
            if math.isfinite(value):
                self._save(value, at)
                _log.info("Saved first model at %.5f @ %d steps", value, at)
        elif math.isfinite(value) and (value > self.best if self._mode == "max" else value < self.best):
            before, before_at = self.best, self.best_iter
            self._save(value, at)
            _log.info(
                "Saved best model as latest eval score for %s is %.5f, better than last best score %.5f @ iteration %s",
                self._metric,
                value,
                before,
                before_at,
            )
        else:
            _log.info(
                "Not saving as latest eval score for %s is %.5f, not better than best score %.5f @ iteration %s",
                self._metric,
                value,
                self.best,
                self.best_iter,
            )

    def _save(self, value: float, at: int) -> None:
        self.best, self.best_iter = value, at
        self._checkpointer.save(self._prefix, iteration=at)

    def after_step(self) -> None:
        done = self.trainer.iter + 1
        if self._period > 0 and done % self._period == 0 and done != self.trainer.max_iter:
            self._check(latest_metric(self.trainer.storage, self._metric))

    def after_train(self) -> None:
        if self.trainer.iter >= self.trainer.max_iter:
            self._check(latest_metric(self.trainer.storage, self._metric))


class LRScheduler(HookBase):
    """Stores the learning rate of each iteration and, without a graph, steps the scheduler.

    In a graph, the scheduler is part of the compiled step. The optimizer and the scheduler default to the trainer's.
    """

    def __init__(self, optimizer: Any = None, scheduler: Any = None) -> None:
        self._optimizer = optimizer
        self._scheduler = scheduler

    def before_train(self) -> None:
        self._optimizer = self._optimizer or self.trainer.optimizer
        self._group = self.get_best_param_group_id(self._optimizer)
        self._in_graph = getattr(self.trainer, "graph_train", None) is not None

    @staticmethod
    def get_best_param_group_id(optimizer: Any) -> int:
        """Returns the group whose learning rate is shown: the one with most parameters.

        If every group has one parameter, it is the first with the most common rate.
        """
        sizes = [len(group["params"]) for group in optimizer.param_groups]
        if max(sizes) > 1:
            return sizes.index(max(sizes))
        rates = [group["lr"] for group in optimizer.param_groups]
        return rates.index(Counter(rates).most_common(1)[0][0])

    def after_step(self) -> None:
        scheduler = self.scheduler
        if self._in_graph and scheduler is not None:
            rate = scheduler.rates(self.trainer.iter)[self._group]
        else:
            rate = self._optimizer.param_groups[self._group]["lr"]
        self.trainer.storage.put_scalar("lr", rate, smoothing_hint=False)
        if not self._in_graph and scheduler is not None:
            scheduler.step()

    @property
    def scheduler(self) -> Any:
        """The scheduler that is stepped."""
        return self._scheduler if self._scheduler is not None else self.trainer.lr_scheduler

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of the scheduler."""
        return self.scheduler.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the state of the scheduler."""
        self.scheduler.load_state_dict(state_dict)


class ProgressBar(HookBase):
    """Shows a progress bar on a terminal."""

    def __init__(self) -> None:
        self._bar: Any = None

    def before_train(self) -> None:
        from libai.utils.progress import terminal_bar

        self._bar = terminal_bar(self.trainer.max_iter, self.trainer.start_iter)

    def after_step(self) -> None:
        if self._bar is not None:
            self._bar.update(1)

    def after_train(self) -> None:
        if self._bar is not None:
            self._bar.close()


class StopOnSignal(HookBase):
    """Ends the run on SIGINT and SIGTERM after an iteration, with a checkpoint to resume from.

    A second signal ends it immediately.
    """

    def __init__(self, checkpointer: _PeriodicCheckpointer) -> None:
        self._checkpointer = checkpointer
        self._signal: StopSignal | None = None

    def before_train(self) -> None:
        self._signal = StopSignal()

    def after_step(self) -> None:
        assert self._signal is not None
        if self.trainer.iter < self.trainer.max_iter - 1 and self._signal.is_agreed(self.trainer.iter):
            name = self._checkpointer.save_now(self.trainer.iter)
            _log.warning(
                "Stopped by a signal after iteration %d, saved %s; continue with --resume", self.trainer.iter, name
            )
            self._signal.end()

    def after_train(self) -> None:
        if self._signal is not None:
            self._signal.restore()
