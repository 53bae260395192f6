"""``global_function`` in every form that programs of all eras use, and the default session behind it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oneflow.engine.core.body import running_body
from oneflow.engine.core.errors import ArgumentError, JobError
from oneflow.engine.core.tracebacks import entry, trim
from oneflow.engine.ir.trace import current, require_trace
from oneflow.engine.job.job import Job
from oneflow.engine.job.session import Session
from oneflow.engine.job.settings import FunctionConfig, Settings


class _Default:
    """Holds the session that the module-level functions speak to."""

    def __init__(self) -> None:
        self.session = Session()


_DEFAULT = _Default()


def default_session() -> Session:
    return _DEFAULT.session


def clear_default_session() -> None:
    """Closes the session and opens an empty one: jobs, variables and the numbers of devices are gone, old job functions
    cannot be called.

    Machines stay: they are the process's, not the session's.
    """
    old = _DEFAULT.session
    _DEFAULT.session = Session()
    _DEFAULT.session.machines = old.machines
    _DEFAULT.session.before_start = old.before_start
    old.close()


def InitEagerGlobalSession() -> None:
    """Does nothing: a session is open from the start."""


def TryCloseAllSession() -> None:
    """``clear_default_session()``."""
    clear_default_session()


def inter_job_reuse_mem_strategy(strategy_str: str, job_set: Any = None, **kwargs: Any) -> None:
    """A tuning knob of the original's memory; taken, without effect."""


def sync_default_session() -> None:
    """Returns when every call made so far has run; here calls run before they return."""


def current_machine_id() -> int:
    """This machine's place in the list of ``flow.env.machine``, or in the order of a launcher; 0 for one machine."""
    return default_session().machines.here


@entry
def global_function(type: Any = None, function_config: FunctionConfig | None = None) -> Any:
    """Makes a function a job.

    Written bare, with a config, or with ``type="train" | "predict"`` and ``function_config=``. Without a type, a job is
    a train job if its config (or its body, through ``flow.config.train``) sets any ``train.*``.
    """
    return _decorator(type, function_config, is_early=False)


@entry
def function(type: Any = None, function_config: FunctionConfig | None = None) -> Any:
    """Makes a function a job: ``global_function`` under its name until June 2020.

    In such a job the gradient of a sparse cross entropy is 0 where the loss is at its cap of 46.05.
    """
    return _decorator(type, function_config, is_early=True)


def _decorator(type: Any, config: Any, is_early: bool) -> Any:
    if callable(type) and not isinstance(type, FunctionConfig):
        return _decorate(type, None, None, is_early)
    kind, config = _read_arguments(type, config)
    return lambda function: _decorate(function, kind, config, is_early)


def _read_arguments(type: Any, config: Any) -> tuple[str | None, FunctionConfig | None]:
    if isinstance(type, FunctionConfig):
        if config is not None:
            raise ArgumentError("global_function was given two configs")
        return None, type
    if type not in (None, "train", "predict"):
        raise ArgumentError(f"a job's type is 'train' or 'predict', got {type!r}")
    if config is not None and not isinstance(config, FunctionConfig):
        raise ArgumentError(f"function_config is made by flow.function_config(), got {config!r}")
    return type, config


def _decorate(
    function: Callable[..., Any], kind: str | None, config: FunctionConfig | None, is_early: bool
) -> Callable[..., Any]:
    if not callable(function) or not hasattr(function, "__code__"):
        raise ArgumentError(f"a job is a Python function, got {function!r}")
    if current() is not None:
        return function  # a job defined in the body of another is part of it
    session = default_session()
    job = Job(session, function, kind, config, is_early)
    session.register(job)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if running_body() is not None:
            trace = require_trace(job.name)
            raise JobError(
                f"job {job.name!r} is called inside job {trace.graph.job!r}; call the plain function instead"
            )
        try:
            return job.call(args, kwargs)
        except Exception as error:
            trim(error)
            raise

    call.__dict__["job"] = job  # where those who are given the function find it
    return call


def enable_eager_execution(val: bool = True) -> None:
    """Runs the body of every job at every call, instead of once. Call it before the first job is defined."""
    session = default_session()
    if session.jobs and session.eager != val:
        raise JobError(f"enable_eager_execution comes before the first job; {len(session.jobs)} are defined")
    session.eager = val


def eager_execution_enabled() -> bool:
    """Whether job bodies run at every call."""
    return default_session().eager


@dataclass(frozen=True)
class FunctionDesc:
    """What is known of the job whose body is running."""

    name: str
    job_config_proto: Settings

    def IsTrainable(self) -> bool:
        """True in a train job."""
        return self.job_config_proto.is_train


def current_global_function_desc() -> FunctionDesc:
    """A description of the job whose body is running."""
    trace = require_trace("flow.current_global_function_desc")
    return FunctionDesc(trace.graph.job, trace.settings)
