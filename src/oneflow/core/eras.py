"""Names that both eras have, one function each: inside a job, or called on a blob, the job's op; otherwise the tensor's.

A job body traces blobs; outside one there are none, so what is running says which of the two is meant.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from oneflow.core.body import Symbol, running_body

_F = TypeVar("_F", bound=Callable[..., Any])


def either(job: _F, tensor: Callable[..., Any]) -> _F:
    """A function that is ``job`` where blobs are meant and ``tensor`` anywhere else. It has the name and signature of ``job``."""

    @wraps(job)
    def chosen(*args: Any, **kwargs: Any) -> Any:
        return (job if means_job(args, kwargs) else tensor)(*args, **kwargs)

    chosen.of_job, chosen.of_tensors = job, tensor  # type: ignore[attr-defined]
    return chosen  # type: ignore[return-value]


def means_job(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call is one of a job: made while a body runs, or on a blob."""
    return running_body() is not None or any(isinstance(value, Symbol) for value in (*args, *kwargs.values()))


class EitherClass(type):
    """The type of a module class whose name is a function in jobs: ``_of_job`` of the class is that function."""

    _of_job: Callable[..., Any]

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls._of_job(*args, **kwargs) if means_job(args, kwargs) else super().__call__(*args, **kwargs)
