"""Settings of a run that come from the environment."""

from __future__ import annotations

import os

from oneflow.engine.core.errors import ArgumentError

_STEP_SECONDS = 600.0
_CONNECT_SECONDS = 300.0
_LONGEST = 1e6  # seconds; torch and sockets count in milliseconds, and not to infinity


def step_seconds(given: float | None = None) -> float:
    """How long a call may take: as given, else ``ONEFLOW_STEP_TIMEOUT``, else ten minutes."""
    return (
        _positive("step timeout", given)
        if given is not None
        else _from_environment("ONEFLOW_STEP_TIMEOUT", _STEP_SECONDS)
    )


def connect_seconds() -> float:
    """How long processes wait for each other at the start: ``ONEFLOW_CONNECT_TIMEOUT``, else five minutes."""
    return _from_environment("ONEFLOW_CONNECT_TIMEOUT", _CONNECT_SECONDS)


def given_secret() -> bytes:
    """The secret that every machine of a run is given by the user."""
    secret = os.environ.get("ONEFLOW_SECRET", "")
    if not secret:
        raise ArgumentError(
            "several machines need a shared secret, so that nobody else can join the run: "
            "set the environment variable ONEFLOW_SECRET to the same long random text on every machine"
        )
    return secret.encode()


def given_port(port: int) -> int:
    """The control port of several machines, which must be told."""
    if not port:
        raise ArgumentError(
            "several machines need a control port, the same free one on each: set it with flow.env.ctrl_port(port)"
        )
    return port


def share_of_threads(given: int | None, workers: int) -> int:
    """Threads of a worker for computing: as given, else its share of this machine's cores."""
    if given is not None and given < 1:
        raise ArgumentError(f"{given} threads for a worker; at least 1 is needed")
    return given if given is not None else max(1, len(os.sched_getaffinity(0)) // workers)


def _from_environment(name: str, default: float) -> float:
    text = os.environ.get(name)
    if text is None:
        return default
    try:
        return _positive(name, float(text))
    except ValueError:
        raise ArgumentError(
            f"environment variable {name} is {text!r}; set it to a number of seconds, or unset it"
        ) from None


def _positive(name: str, seconds: float) -> float:
    if not seconds > 0:
        raise ArgumentError(f"{name} of {seconds:g} s; it must be more than 0")
    return min(seconds, _LONGEST)
