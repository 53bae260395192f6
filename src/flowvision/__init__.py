"""Data sets, transforms and networks for pictures, on :mod:`oneflow`.

The namespaces are loaded when they are first asked for, so that a program which reads pictures does not wait for a
model zoo.
"""

from __future__ import annotations

from oneflow.compat.absent import absent as _absent
from oneflow.engine.core.late import late as _late
from oneflow.engine.core.optional import require_packages as _require
from oneflow.version import __version__

_require("flowvision", "vision", "PIL")
_NAMESPACES = ("data", "datasets", "layers", "loss", "models", "ops", "scheduler", "transforms", "utils")

__all__ = ["__version__"]  # the namespaces are there too; a star import need not load them

__getattr__ = _late("flowvision", _NAMESPACES, _absent("flowvision", {}, lambda: dict.fromkeys(_NAMESPACES)))


def __dir__() -> list[str]:
    return sorted([*globals(), *_NAMESPACES])
