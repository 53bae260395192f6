"""LiBai on this package's oneflow: lazy configs, data, a trainer, hooks, evaluators and checkpoints around a model of one's own.

The namespaces below are loaded when they are first asked for, as is everything in them that needs torch's compiler.
"""

from __future__ import annotations

import importlib
from typing import Any

from oneflow.version import __version__

_NAMESPACES = ("config", "data", "engine", "evaluation", "models", "optim", "scheduler", "utils")

__all__ = ["__version__"]  # the namespaces are there too; a star import need not load them


def __getattr__(name: str) -> Any:
    if name in _NAMESPACES:
        return importlib.import_module(f"libai.{name}")
    raise AttributeError(f"module 'libai' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_NAMESPACES])
