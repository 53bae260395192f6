"""The progress of a run: what a checkpoint holds besides weights, and what is read before anything is built."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import oneflow as flow
from libai.utils import distributed as dist
from libai.utils.checkpoint import LAST
from oneflow.engine.core.errors import CheckpointError

_NUMBER = re.compile(r"_(\d{7,})$")


@dataclass(frozen=True)
class ResumePoint:
    """The first iteration of a run, the samples used before it, and whether the final evaluation was done."""

    iteration: int = 0
    samples: int = 0
    is_evaluated: bool = False


class RunState:
    """Samples and iterations so far, and the states of the parts registered by :meth:`keep`.

    It is the entry ``trainer`` of a checkpoint.
    """

    def __init__(self, cfg: Any, begin: ResumePoint) -> None:
        steps = 1 if cfg.graph.enabled else cfg.train.num_accumulation_steps
        self.per_iteration = cfg.train.global_batch_size // steps
        self.done = begin.iteration
        self._begin = begin
        self._parts: dict[str, Any] = {}
        self._loaded: dict[str, Any] = {}

    @property
    def consumed_samples(self) -> int:
        """The number of samples that all ranks together have used."""
        return self._begin.samples + (self.done - self._begin.iteration) * self.per_iteration

    def keep(self, name: str, part: Any) -> Any:
        """Registers ``part``, restores its state if one was loaded, and returns it."""
        self._parts[name] = part
        if name in self._loaded:
            part.load_state_dict(self._loaded[name])
        return part

    def state_dict(self) -> dict[str, Any]:
        """Returns plain values."""
        return {
            "consumed_samples": self.consumed_samples,
            **{name: part.state_dict() for name, part in self._parts.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Keeps the states for the parts that are registered later."""
        self._loaded = {name: value for name, value in state.items() if isinstance(value, dict)}


def resume_point(cfg: Any) -> ResumePoint:
    """Returns where a run begins: at iteration 0, or after the last checkpoint when resuming."""
    if not cfg.train.get("resume", False):
        return ResumePoint()
    last = dist.broadcast_py_object(_last(Path(cfg.train.output_dir)) if dist.is_main_process() else None)
    if isinstance(last, str):
        raise CheckpointError(last)
    if last is None:
        return ResumePoint()
    done, state = last
    per_iteration = cfg.train.global_batch_size // (1 if cfg.graph.enabled else cfg.train.num_accumulation_steps)
    evaluated = not cfg.train.evaluation.enabled or state.get("evaluation", {}).get("evaluated") == done
    return ResumePoint(done, state.get("consumed_samples", done * per_iteration), evaluated)


def _last(folder: Path) -> tuple[int, dict[str, Any]] | str | None:
    """Returns the iterations done at the last checkpoint and its state; None without one, else an error message."""
    try:
        name = (folder / LAST).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
    if not (folder / name).is_dir():
        return (
            f"{str(folder / LAST)!r} names {name!r}, and there is no such checkpoint; write the name of an existing one "
            f"into it, or remove it"
        )
    state = flow.load(folder / name / "trainer") if (folder / name / "trainer").is_dir() else {}
    number = _NUMBER.search(name)
    if "iteration" in state:
        return state["iteration"] + 1, state
    if number is not None:  # LiBai's own
        return int(number[1]) + 1, {}
    return (
        f"{str(folder / name)!r} has no iteration; write the name of a numbered checkpoint into {str(folder / LAST)!r}"
    )
