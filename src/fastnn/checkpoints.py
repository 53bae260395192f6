"""Checkpoints of a run: ``<checkpointDir>/model.ckpt-<step>``, folders that resume it bit for bit; on request slim's
files beside them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import oneflow as flow
from fastnn.errors import FlagError
from fastnn.flags import Flags
from fastnn.models.model_factory import NetworkFn
from flowvision.models import slim
from libai.utils import distributed as dist
from libai.utils.checkpoint import Checkpointer, PeriodicCheckpointer
from libai.utils.whole_file import write_whole

_NAME = re.compile(r"model\.ckpt-(\d+)")
_KEPT = 5


class StepCheckpointer(PeriodicCheckpointer):
    """Saves every ``period`` steps under the number of steps done, and keeps the newest five."""

    def __init__(self, checkpointer: Checkpointer, period: int, network_fn: NetworkFn | None = None) -> None:
        super().__init__(checkpointer, period, max_to_keep=_KEPT)
        self._slim = network_fn if network_fn is not None and network_fn.is_slim else None

    def name_of(self, iteration: int) -> str:
        return f"model.ckpt-{iteration + 1}"

    def iteration_of(self, name: str) -> int | None:
        found = _NAME.fullmatch(name)
        return int(found[1]) - 1 if found else None

    def save_now(self, iteration: int, **kwargs: Any) -> str:
        name = super().save_now(iteration, **kwargs)
        if self._slim is not None:
            variables = self._slim.slim_module.slim_variables()  # of all workers, where these share them
            if dist.is_main_process():
                self._save_slim(variables, Path(self.checkpointer.save_dir), name, iteration + 1)
        return name

    def _save_slim(self, variables: Mapping[str, np.ndarray], folder: Path, name: str, step: int) -> None:
        """TensorFlow's files of the same checkpoint, its list of them, and none of those that are gone."""
        slim.save_slim_checkpoint(variables, folder / name, step)
        for file in folder.glob("model.ckpt-*.*"):
            if file.is_file() and file.name.split(".index")[0].split(".data")[0] not in self.recent:
                file.unlink()
        every = "".join(f'all_model_checkpoint_paths: "{kept}"\n' for kept in self.recent)
        write_whole(folder / "checkpoint", f'model_checkpoint_path: "{name}"\n{every}')


class RunState:
    """Where a run stands besides its variables: the position in the data, and the step; and the flags without which its
    variables do not fit."""

    def __init__(self, iterator: Any, flags: Flags) -> None:
        self._iterator = iterator
        self._flags = {name: getattr(flags, name) for name in ("model_name", "num_classes", "optimizer")}
        self.step = 0

    def state_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"data": self._iterator.state(), "step": self.step, "flags": self._flags}

    def require_same_run(self, path: str) -> None:
        """A checkpoint of another network, of other classes or of another optimizer is told before anything of it is
        loaded."""
        saved = flow.load(Path(path) / "run").get("flags", {})
        for name, value in self._flags.items():
            if saved.get(name, value) != value:
                raise FlagError(
                    f"{path} is of a run with --{name}={saved[name]}, this one has --{name}={value}; name another "
                    f"--checkpointDir, or start anew with "
                    f"--resume=False (--task_type=finetune begins with the variables that fit)"
                )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from there."""
        self._iterator.load_state(state["data"])
        self.step = state["step"]
