"""Names that both eras have, one function each: inside a job, or called on a blob, the job's op; otherwise the
tensor's.

A job body traces blobs; outside one there are none, so what is running says which of the two is meant.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
import torch

from oneflow.engine.core.body import Symbol, running_body
from oneflow.engine.core.errors import OutsideJobError
from oneflow.engine.core.tracebacks import trim

_P = ParamSpec("_P")
_R = TypeVar("_R")


def either(job: Callable[_P, _R], tensor: Callable[..., Any]) -> Callable[_P, _R]:
    """A function that is ``job`` where blobs are meant and ``tensor`` anywhere else. It has the name and signature of
    ``job``."""

    @wraps(job)
    def chosen(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return (job if means_job(args, kwargs) else tensor)(*args, **kwargs)
        except Exception as error:
            trim(error)
            raise

    vars(chosen).update(of_job=job, of_tensors=tensor)
    return chosen


def means_job(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call is one of a job: made while a body runs, or on a blob."""
    if running_body() is not None:
        return True
    for value in args:  # a loop, as this stands before every call on tensors
        if isinstance(value, Symbol):
            return True
    return bool(kwargs) and any(isinstance(value, Symbol) for value in kwargs.values())


class EitherClass(type):
    """The type of a module class whose name is a function in jobs: ``_of_job`` of the class is that function.

    A class derived from one is a module everywhere. Arrays for the first ``_blobs`` arguments are those of a job's op,
    not of a module, and refused outside a job.
    """

    _of_job: Callable[..., Any]
    _blobs = 1

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if "_of_job" not in vars(cls):
            return super().__call__(*args, **kwargs)
        if means_job(args, kwargs):
            return cls._of_job(*args, **kwargs)
        if len(args) >= cls._blobs and all(
            isinstance(value, (torch.Tensor, np.ndarray)) for value in args[: cls._blobs]
        ):
            raise OutsideJobError(
                f"flow.nn.{cls.__name__} was called on data outside a job function, where it is a module: make it "
                f"first and call it then, "
                f"flow.nn.{cls.__name__}(...)(input, ...)"
            )
        return super().__call__(*args, **kwargs)
