"""``flow.global_function`` and the configs of job functions under their earlier path."""

from __future__ import annotations

from typing import Any

from oneflow.engine.job.function import eager_execution_enabled, global_function
from oneflow.engine.job.settings import FunctionConfig

__all__ = ["FunctionConfig", "api_oneflow_function", "global_function_or_identity"]

api_oneflow_function = global_function


def global_function_or_identity(*args: Any, **kwargs: Any) -> Any:
    """``flow.global_function(...)``, or where eager execution is on a decorator that leaves the function as it is."""
    return (lambda function: function) if eager_execution_enabled() else global_function(*args, **kwargs)
