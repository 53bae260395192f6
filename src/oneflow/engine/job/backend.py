"""What runs jobs: in this process, or on workers that it drives. A session has one backend and asks it for everything
that depends on which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch

from oneflow.engine.ir.graph import Reader
from oneflow.engine.job.traced import Traced
from oneflow.engine.runtime.rank.variables import Keeper

Value = torch.Tensor | np.ndarray | list[np.ndarray]
"""What a step gives: a tensor; a whole array from workers; or for a mirrored job on workers one array per device."""
Values = tuple[Value, ...]


class OpenJob(Protocol):
    """A traced job on a backend. What it needs for a step is compiled when the first step asks for it, per set of input
    shapes."""

    def step(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Values, Values]:
        """One call of the job: its results and watched values."""

    def readers(self) -> Mapping[str, Reader]:
        """What reads the job's data, by name."""

    def refresh(self, traced: Traced) -> None:
        """Forgets what was compiled; the same graph goes on under other settings."""

    def close(self) -> None:
        """Forgets what was compiled and lets go of its memory."""


class Backend(Protocol):
    """Where the jobs of a session run. ``has_workers`` tells whether other processes run them, ``workers`` how many
    processes do; ``variables`` keeps the values of their variables."""

    @property
    def has_workers(self) -> bool: ...

    @property
    def workers(self) -> int: ...

    @property
    def variables(self) -> Keeper: ...

    def open(self, job: Traced, device: torch.device) -> OpenJob:
        """Makes a traced job ready, in place of an earlier one of its name: its variables have a place, its readers
        their shares."""

    def close(self) -> None:
        """Ends what the backend has running."""
