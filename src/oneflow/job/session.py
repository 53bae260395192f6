"""The session: the jobs of a process, the variables they share, and the device they run on."""

from __future__ import annotations

from typing import Any

import torch

from oneflow.core.errors import JobError
from oneflow.core.placement import Placement
from oneflow.ir.trace import current
from oneflow.job.job import Job
from oneflow.runtime.device import Devices
from oneflow.runtime.variables import VariableStore


class Session:
    """Jobs by name, their variables, and whether anything ran yet."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.defaults: dict[str, Any] = {}
        self.store = VariableStore()
        self.devices = Devices()
        self.gpu_num: int | None = None
        self.cpu_num: int | None = None
        self.eager = False
        self.closed = False
        self._ready = True

    @property
    def is_running(self) -> bool:
        """True once a job was traced."""
        return any(job.graph is not None for job in self.jobs.values())

    def default_placement(self) -> Placement:
        """All configured devices."""
        return self.devices.default_placement(self.gpu_num, self.cpu_num)

    def register(self, job: Job) -> None:
        """Makes a job known under its name; a later one of the same name takes its place."""
        before = self.jobs.get(job.name)
        if before is not None and before.graph is not None:
            before.graph.close_sources()
        self.jobs[job.name] = job
        self._ready = False

    def start(self) -> None:
        """Traces every job that was not traced yet, in the order they were defined, and gives their variables values."""
        if self.closed:
            raise JobError("this job belongs to a session that flow.clear_default_session() closed; define it again")
        if self._ready:
            return
        trace = current()
        if trace is not None:
            raise JobError(f"the variables of a session cannot be asked for inside the body of job {trace.graph.job!r}; call it outside")
        for job in self.jobs.values():
            if job.graph is None:
                job.trace()
        self.store.materialise(self._device())
        self._ready = True

    def _device(self) -> torch.device:
        """The device variables live on: that of the jobs."""
        devices = [job.device for job in self.jobs.values()]
        return next((d for d in devices if d.type == "cuda"), torch.device("cpu"))

    def model_variables(self) -> list[str]:
        """The variables that job bodies name; not optimizer state, not counters."""
        return [name for name in self.store if any(job.graph is not None and name in job.graph.decls for job in self.jobs.values())]

    def close(self) -> None:
        """Ends what the jobs' sources have in work. None of the jobs can be called any more."""
        self.closed = True
        for job in self.jobs.values():
            if job.graph is not None:
                job.graph.close_sources()

    def require_jobs(self, what: str) -> None:
        """Starts the session for ``what``; without any job there is nothing to do it to."""
        if not self.jobs:
            raise JobError(f"{what}: no job is defined; decorate a function with @flow.global_function first")
        self.start()
