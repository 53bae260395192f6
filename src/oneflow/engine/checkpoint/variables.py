"""``flow.checkpoint``: the variables of all jobs, saved to and loaded from a folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from oneflow.engine.checkpoint import positions
from oneflow.engine.checkpoint.folder import FileValue, read_checkpoint, write_checkpoint
from oneflow.engine.checkpoint.from_torch import from_torch
from oneflow.engine.checkpoint.safetensors import to_safetensors
from oneflow.engine.core.errors import ArgumentError, CheckpointError
from oneflow.engine.core.tracebacks import entry
from oneflow.engine.job.function import default_session
from oneflow.engine.job.session import Session

__all__ = ["from_torch", "get", "get_all_variables", "load_variables", "save", "to_safetensors"]

_FUSION_NOTE = "System-Fusion-"  # older checkpoints name the fusion setting of each job; it is ignored


@dataclass(frozen=True)
class Variable:
    """A variable of the running session."""

    name: str
    session: Session

    @property
    def shape(self) -> tuple[int, ...]:
        return self.session.store.decls[self.name].spec.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.session.store.decls[self.name].spec.dtype.torch

    def numpy(self) -> np.ndarray:
        """A copy of the present values."""
        return self.session.store.numpy(self.name)


@entry
def get_all_variables() -> dict[str, Variable]:
    """Every variable of every job by name: weights, optimizer state, step counters."""
    session = default_session()
    session.require_jobs("get_all_variables")
    return {name: Variable(name, session) for name in session.store}


@entry
def save(path: str | os.PathLike[str], var_dict: Mapping[str, Any] | None = None) -> None:
    """Saves all variables and where the jobs' readers stand, or the given variables. ``path`` must not exist, or be an
    empty folder."""
    values: Mapping[str, Any] = get_all_variables() if var_dict is None else var_dict
    others = positions.positions(default_session()) if var_dict is None else {}
    write_checkpoint(path, {name: _array(name, value) for name, value in values.items()} | others)


@entry
def get(path: str | os.PathLike[str]) -> Any:
    """The variables of a saved checkpoint by name; for the folder of one variable, that one."""
    found = read_checkpoint(path)
    only = next(iter(found.values()))
    return only if len(found) == 1 and only.folder == Path(path) else found


def save_dict(obj: Mapping[str, Any], save_dir: str | os.PathLike[str]) -> None:
    """``flow.save``: saves the given values by name, arrays or variables, without touching the session."""
    save(save_dir, obj)


@entry
def load_variables(value_dict: Mapping[str, Any], ignore_mismatch: bool = True) -> None:
    """Sets variables from arrays, saved values or other variables, all or none.

    Names that no job has are ignored unless ``ignore_mismatch`` is False; shape and dtype must match. The positions of
    the jobs' readers, where a saved checkpoint has them, are restored too.
    """
    if not isinstance(value_dict, Mapping):
        raise ArgumentError(
            f"load_variables takes a dictionary of values by variable name, got {type(value_dict).__name__}"
        )
    session = default_session()
    session.require_jobs("load_variables")
    store = session.store
    readers = positions.read_positions(
        session, {n: _array(n, v) for n, v in value_dict.items() if n.startswith(positions.PREFIX)}
    )
    value_dict = {
        name: value for name, value in value_dict.items() if not name.startswith((positions.PREFIX, _FUSION_NOTE))
    }
    unknown = [name for name in value_dict if name not in store.decls]
    if unknown and not ignore_mismatch:
        raise UnknownVariableError(f"no job has a variable {unknown[0]!r} ({len(unknown)} unknown names)")
    wanted = {name: value for name, value in value_dict.items() if name in store.decls}
    store.write({name: _for_variable(session, name, value) for name, value in wanted.items()})
    positions.restore(session, readers)


class UnknownVariableError(CheckpointError, RuntimeError):
    """A value for a variable that no job has."""


def _for_variable(session: Session, name: str, value: Any) -> np.ndarray:
    return value.numpy(session.store.decls[name].spec) if isinstance(value, FileValue) else _array(name, value)


def _array(name: str, value: Any) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "numpy"):
        return value.numpy()
    raise ArgumentError(f"variable {name!r} takes an array or a saved value, got {type(value).__name__}")
