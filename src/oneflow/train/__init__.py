"""``flow.train``: checkpoints as objects."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

from oneflow import checkpoint
from oneflow.engine.checkpoint.folder import DONE, read_checkpoint
from oneflow.engine.core.errors import CheckpointError
from oneflow.engine.core.tracebacks import entry
from oneflow.engine.job.function import default_session

__all__ = ["CheckPoint", "SimpleCheckPointManager"]


class CheckPoint:
    """Initialises, saves and loads the variables of all jobs. Every method is done when it returns."""

    @entry
    def init(self) -> None:
        """Draws all variables anew from their initializers."""
        session = default_session()
        fresh = not session.is_running
        if session.eager and not session.jobs:
            return  # in eager execution programs begin with it; variables have first values anyway
        session.require_jobs("CheckPoint.init")
        if not fresh:
            session.store.initialise()

    @entry
    def save(self, path: str) -> None:
        """Saves all variables, optimizer state, step counters and where readers of data stand. ``path`` must not exist,
        or be an empty folder."""
        _check_path(path)
        checkpoint.save(path)

    @entry
    def load(self, path: str) -> None:
        """Loads every variable of the jobs from ``path``; all are checked before the first is changed.

        Optimizer state and step counters may be missing, since a model for prediction is saved without them elsewhere;
        a missing weight is an error. Folders that no job knows are ignored. Readers of data go on where they were, and
        a reader whose files are not those of then begins anew, with a warning.
        """
        _check_path(path)
        session = default_session()
        session.require_jobs("CheckPoint.load")
        found = read_checkpoint(path)
        missing = [name for name in session.model_variables() if name not in found]
        if missing:
            spec = session.store.decls[missing[0]].spec
            raise CheckpointError(
                f"checkpoint {path!r} has no variable {missing[0]!r}, a job needs it as {spec} "
                f"({len(missing)} missing; it holds {_listed(list(found))}). To load only what is there: "
                "flow.load_variables(flow.checkpoint.get(path))"
            )
        checkpoint.load_variables(found)


def _check_path(path: str) -> None:
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        raise CheckpointError(f"a checkpoint's path is a string, got {path!r}")


def _listed(names: list[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


class SimpleCheckPointManager:
    """A folder of snapshots, each named by the time it was saved."""

    def __init__(self, root_path: str, prefix: str = "snapshot_") -> None:
        self._root = Path(root_path)
        self._prefix = prefix
        self._check_point = CheckPoint()

    def list_checkpoints(self) -> list[str]:
        """Names of the complete snapshots, oldest first."""
        if not self._root.is_dir():
            return []
        names = [p.name for p in self._root.iterdir() if (p / DONE).exists() and not p.name.endswith(".tmp")]
        return sorted(name for name in names if name.startswith(self._prefix))

    def latest_checkpoint(self) -> str | None:
        """The name of the newest snapshot, if there is one."""
        return next(reversed(self.list_checkpoints()), None)

    def initialize_or_restore(self) -> None:
        """Loads the newest snapshot; without one initialises all variables and saves them."""
        latest = self.latest_checkpoint()
        if latest is not None:
            self._check_point.load(str(self._root / latest))
        else:
            self._check_point.init()
            self.save()

    def save(self) -> None:
        """Saves a new snapshot."""
        stamp = datetime.datetime.now().strftime("%Y%m%d_%H%M%S_%f")
        self._check_point.save(str(self._root / f"{self._prefix}{stamp}"))
