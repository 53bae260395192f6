"""The job behind a decorated function, and the names of its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oneflow.engine.core.errors import ArgumentError, JobError
from oneflow.engine.job.job import Job
from oneflow.typing.definitions import TensorDef


def predict_job(job_func: Callable[..., Any], what: str) -> Job:
    """The traced predict job of a decorated function."""
    job = getattr(job_func, "job", None)
    if not isinstance(job, Job):
        raise ArgumentError(f"{what} takes a function decorated with @flow.global_function, got {job_func!r}")
    job.session.start()
    job.session.trace()  # eager execution traces a job when it is called
    job.session.settle()
    if job.session.current(job.name) is not job:
        raise JobError(f"job {job.name!r} of {job.line} was replaced by another definition; give {what} the later one")
    assert job.graph is not None
    if job.graph.is_train:
        raise JobError(
            f"job {job.name!r} of {job.line} is a train job, {what} takes a predict job: write one that calls the same "
            f"network "
            "with the same names and returns its outputs, as in docs/onnx.md"
        )
    return job


def input_names(job: Job) -> list[str]:
    """A name for each declared input: its own where the definition gives one, else the parameter's, as in ``images`` or
    ``xs[0]``."""
    names: list[str] = []
    for parameter, tree in zip(job.signature.names, job.signature.defs):
        _collect(parameter, tree, names)
    return names


def _collect(path: str, tree: Any, names: list[str]) -> None:
    if isinstance(tree, TensorDef):
        names.append(tree.name or path)
        return
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items:
        _collect(f"{path}[{key!r}]", value, names)
