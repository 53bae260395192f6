"""Where the jobs' readers stand, as part of a checkpoint: one ``System-DataState-<job>`` per job, JSON as uint8
numbers."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from oneflow.engine.core.errors import CheckpointError, DataError
from oneflow.engine.job.job import Job
from oneflow.engine.job.session import Session

PREFIX = "System-DataState-"


def positions(session: Session) -> dict[str, np.ndarray]:
    """The position of every job that reads data, as values to be saved."""
    found = {PREFIX + name: _states(job) for name, job in session.jobs.items()}
    return {name: written(states) for name, states in found.items() if states}


def written(states: Mapping[str, Any]) -> np.ndarray:
    """Positions by reader as a value to be saved."""
    return np.frombuffer(json.dumps(states).encode(), np.uint8)


def _states(job: Job) -> dict[str, Any]:
    states = {name: reader.state() for name, reader in job.readers().items()}
    return {name: state for name, state in states.items() if state is not None}


def read_positions(session: Session, values: Mapping[str, np.ndarray]) -> dict[str, dict[str, Any]]:
    """The saved positions of the session's jobs by job; those of other jobs are left out."""
    return {name: parsed(PREFIX + name, values[PREFIX + name]) for name in session.jobs if PREFIX + name in values}


def parsed(name: str, value: np.ndarray) -> dict[str, Any]:
    """Positions by reader out of the saved value ``name``."""
    try:
        states = json.loads(value.tobytes())
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{name!r} of the checkpoint is damaged: {error}") from None
    if not isinstance(states, dict):
        raise CheckpointError(
            f"{name!r} of the checkpoint is damaged: it holds a {type(states).__name__}, not positions by reader"
        )
    return states


def restore(session: Session, saved: Mapping[str, dict[str, Any]]) -> None:
    """Takes each reader to where it was. One that reads other data now begins at its start, with a warning:
    a model is often loaded to go on with other data."""
    for name, states in saved.items():
        for reader, source in session.jobs[name].readers().items():
            if reader not in states:
                continue
            try:
                source.load_state(states[reader])
            except DataError as error:
                warnings.warn(
                    f"reader {reader!r} of job {name!r} begins at the start of its data: {error}", stacklevel=4
                )
