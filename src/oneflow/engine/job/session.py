"""The session: the jobs of a process, the variables they share, and the device they run on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from oneflow.engine.core.collector import paused
from oneflow.engine.core.errors import JobError
from oneflow.engine.core.placement import Placement
from oneflow.engine.ir.trace import current
from oneflow.engine.job.backend import Backend, OpenJob
from oneflow.engine.job.job import Job
from oneflow.engine.job.machines import HANDLER, Machines
from oneflow.engine.job.traced import Traced
from oneflow.engine.runtime.rank.device import Devices
from oneflow.engine.runtime.rank.variables import VariableStore

_MAKING = threading.RLock()  # one for all sessions: torch's tracing has one state per process


class Session:
    """Jobs by name, their variables, the devices they run on, and whether anything ran yet. Jobs are traced and
    compiled by the thread that holds ``making``; then they run in any."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.defaults: dict[str, Any] = {}
        self.store = VariableStore()
        self.devices = Devices()
        self.machines = Machines()
        self.gpu_num: int | None = None
        self.cpu_num: int | None = None
        self.backend: Backend | None = None
        self.eager = False
        self.before_start: Callable[[], None] | None = (
            None  # called at the first trigger, in place of all that follows if it raises
        )
        self.closed = False
        self.making = _MAKING
        self._ready = True

    @property
    def is_running(self) -> bool:
        """True once a job was traced."""
        return any(job.graph is not None for job in self.jobs.values())

    def default_placement(self) -> Placement:
        """All configured devices."""
        tag, configured = self.devices.default(self.gpu_num, self.cpu_num)
        count = self.machines.devices(configured) or 1
        return Placement(
            tag, tuple((machine, device) for machine in range(self.machines.count) for device in range(count))
        )

    def register(self, job: Job) -> None:
        """Makes a job known under its name; a later one of the same name takes its place."""
        before = self.jobs.get(job.name)
        if before is not None:
            before.close()
            before.is_replaced = True
        self.jobs[job.name] = job
        self._ready = False

    def current(self, name: str) -> Job:
        """The job that is known under a name."""
        return self.jobs[name]

    def start(self) -> None:
        """Traces every job that was not traced yet, in the order of definition, and initializes their variables.

        Raises:
            SystemExit: on every machine but the first, after it has served the run.
        """
        if self._ready and not self.closed:
            return
        with self.making, paused():
            if self._ready and not self.closed:  # another thread has started it
                return
            self._require_outside()
            if self.before_start is not None:
                self.before_start()
            self.machines.serve_and_exit_unless_first(self.default_placement())
            if not self.eager:  # eager calls trace their own job
                self.trace()
                self.settle()
            self._ready = True

    def trace(self) -> None:
        """Traces every job that was not traced yet. Variables get no values, and nothing is started."""
        self._require_outside()
        with self.making, paused():
            for job in self.jobs.values():
                if job.graph is None:
                    job.trace()

    def _require_outside(self) -> None:
        if self.closed:
            raise JobError("this job belongs to a session that flow.clear_default_session() closed; define it again")
        trace = current()
        if trace is not None:
            raise JobError(
                f"the variables of a session cannot be asked for inside the body of job {trace.graph.job!r}; call it "
                f"outside"
            )

    def settle(self) -> None:
        """Decides where the traced jobs run, starts workers if it takes several devices, and gives variables
        storage."""
        jobs = [(job, job.traced) for job in self.jobs.values() if job.traced is not None]
        placements = [placed for _, traced in jobs for placed in traced.placements()]
        backend = self._backend(placements)
        for job, traced in jobs:
            device = self.devices.resolve([placement for placement, _ in traced.placements()], backend.workers)
            if job.opened is None:
                job.opened = backend.open(traced, device)
        self.store.materialise()

    def open(self, traced: Traced) -> OpenJob:
        """A traced job beside those of the session, on the same devices; its variables have values then."""
        backend = self._backend(traced.placements())
        opened = backend.open(
            traced, self.devices.resolve([placement for placement, _ in traced.placements()], backend.workers)
        )
        self.store.materialise()
        return opened

    def _backend(self, placements: list[tuple[Placement, str]]) -> Backend:
        """What runs jobs on these placements: this process where they name its first device alone, else workers."""
        devices = {device for placement, _ in placements for device in placement.devices}
        needs_workers = bool(devices - {(0, 0)}) or self.machines.count > 1 or self.machines.launched is not None
        if self.backend is None or (needs_workers and not self.backend.has_workers):
            self.backend = self._driven(placements) if needs_workers else self._local()
            self.store.keep_in(self.backend.variables)
            for job in self.jobs.values():
                job.opened = None
        return self.backend

    def _local(self) -> Backend:
        from oneflow.engine.job.local import LocalBackend  # loads the compiler, which importing oneflow should not

        return LocalBackend(self.store, self.making)

    def _driven(self, placements: list[tuple[Placement, str]]) -> Backend:
        """Starts a worker on every device."""
        if self.store.has_values:
            raise JobError(
                "a job on several devices comes too late: jobs ran on one device already; define it before the first "
                "job is called"
            )
        from oneflow.engine.job.driven import DrivenBackend
        from oneflow.engine.runtime.driver.driver import Driver

        is_configured = self.gpu_num is not None or self.cpu_num is not None
        world = self.machines.world(placements, self.default_placement(), is_configured)
        return DrivenBackend(self.store, Driver(world, HANDLER, self.machines.launched), self.making)

    def model_variables(self) -> list[str]:
        """The variables that job bodies name; not optimizer state, not counters."""
        return [
            name
            for name in self.store
            if any(job.graph is not None and name in job.graph.decls for job in self.jobs.values())
        ]

    def close(self) -> None:
        """Ends what the jobs' sources have in work. None of the jobs can be called any more."""
        self.closed = True
        for job in self.jobs.values():
            job.close()
        if self.backend is not None:
            self.backend.close()

    def require_jobs(self, what: str) -> None:
        """Starts the session for ``what``; without any job there is nothing to do it to."""
        if not self.jobs:
            raise JobError(f"{what}: no job is defined; decorate a function with @flow.global_function first")
        self.start()
