"""Hooks by name, as the flag ``--hooks`` lists them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fastnn.checkpoints import StepCheckpointer
from fastnn.errors import FlagError
from fastnn.flags import FLAGS, Flags
from fastnn.utils.cluster_utils import task_index
from fastnn.utils.dataset_utils import Share
from libai.engine.hooks import HookBase
from oneflow.engine.core.errors import nearest

_log = logging.getLogger("fastnn")


class StopAtStepHook(HookBase):
    """Ends the run at ``stop_at_step``: the trainer asks it for the last step."""

    def __init__(self, last_step: int) -> None:
        self.last_step = last_step


class LoggingTensorHook(HookBase):
    """A line every ``period`` steps: speed over those steps, loss, accuracy, rate and step. The first step only starts
    the clock."""

    def __init__(self, period: int, samples_per_step: int) -> None:
        self._period = period
        self._samples = samples_per_step
        self._last: tuple[int, float] | None = None

    def after_step(self) -> None:
        done = self.trainer.iter + 1
        if self._last is None:
            self._last = done, time.perf_counter()
            return
        if done - self._last[0] < self._period:
            return
        values = self.trainer.told()  # all workers ask: a loss may lie on all of them
        steps, now = done - self._last[0], time.perf_counter()
        seconds = (now - self._last[1]) / steps
        self._last = done, now
        if self.trainer.is_chief:
            told = ",\t".join(f"{name} = {value:.6g}" for name, value in values.items())
            _log.info("[%.4f secs/step,\t%.4f samples/sec]\t%s", seconds, self._samples / seconds, told)


class ProfilerHook(HookBase):
    """A Chrome trace of every ``period``-th step, ``timeline-<step>.json``; the first step, which compiles, is never
    traced."""

    def __init__(self, period: int, folder: Path) -> None:
        self._period = period
        self._folder = folder
        self._profiler: Any = None

    def before_step(self) -> None:
        step = self.trainer.iter + 1
        if step > self.trainer.start_iter + 1 and step % self._period == 0:
            activities = [torch.profiler.ProfilerActivity.CPU]
            if torch.cuda.is_available():  # never run where the tests run: no GPU there
                activities.append(torch.profiler.ProfilerActivity.CUDA)
            self._profiler = torch.profiler.profile(activities=activities)
            self._profiler.__enter__()

    def after_step(self) -> None:
        if self._profiler is None:
            return
        profiler, self._profiler = self._profiler, None
        profiler.__exit__(None, None, None)
        self._folder.mkdir(parents=True, exist_ok=True)
        target = self._folder / f"timeline-{self.trainer.iter + 1}.json"
        beside = target.with_suffix(".json.tmp")
        profiler.export_chrome_trace(str(beside))
        beside.replace(target)


class CheckpointSaverHook(HookBase):
    """A checkpoint before the first step, every ``save_checkpoints_steps`` and after the last step."""

    def __init__(self, checkpointer: StepCheckpointer) -> None:
        self._checkpointer = checkpointer

    def before_train(self) -> None:
        if self.trainer.start_iter == 0:
            self._checkpointer.save_now(-1)

    def after_step(self) -> None:
        self._checkpointer.step(self.trainer.iter)

    def after_train(self) -> None:
        if self.trainer.is_finished:
            self._checkpointer.save_now(self.trainer.iter - 1)


Maker = Callable[[Flags, Share, StepCheckpointer | None], HookBase | None]


def _stop(flags: Flags, share: Share, checkpointer: StepCheckpointer | None) -> HookBase:
    return StopAtStepHook(flags.stop_at_step)


def _profiler(flags: Flags, share: Share, checkpointer: StepCheckpointer | None) -> HookBase | None:
    if flags.profile_every_n_iters <= 0 or max(share.worker, task_index(flags)) != flags.profile_at_task:
        return None
    return ProfilerHook(flags.profile_every_n_iters, Path(flags.checkpointDir or flags.output_dir))


def _logging(flags: Flags, share: Share, checkpointer: StepCheckpointer | None) -> HookBase | None:
    if flags.log_loss_every_n_iters <= 0:
        return None
    return LoggingTensorHook(flags.log_loss_every_n_iters, flags.batch_size * share.workers)


def _saver(flags: Flags, share: Share, checkpointer: StepCheckpointer | None) -> HookBase | None:
    return None if checkpointer is None else CheckpointSaverHook(checkpointer)


_MAKERS: dict[str, Maker] = {
    "StopAtStepHook": _stop,
    "ProfilerHook": _profiler,
    "LoggingTensorHook": _logging,
    "CheckpointSaverHook": _saver,
}


def get_hooks(
    flags: Flags = FLAGS, share: Share | None = None, checkpointer: StepCheckpointer | None = None
) -> list[HookBase]:
    """The hooks that ``--hooks`` names, in any case of letters; those that other flags switch off are left out."""
    known = {name.lower(): maker for name, maker in _MAKERS.items()}
    found = []
    for name in filter(None, (word.strip() for word in flags.hooks.split(","))):
        if name.lower() not in known:
            raise FlagError(
                f"--hooks: there is no hook {name!r}.{nearest(name, _MAKERS)} There are {', '.join(_MAKERS)}"
            )
        hook = known[name.lower()](flags, share or Share(), checkpointer)
        if hook is not None:
            found.append(hook)
    return found
