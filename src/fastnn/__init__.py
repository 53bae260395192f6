"""FastNN: image classification from flags, on the networks of :mod:`flowvision` and the trainer of :mod:`libai`.

The namespaces are loaded when they are first asked for.
"""

from __future__ import annotations

from oneflow.compat.absent import absent as _absent
from oneflow.engine.core.late import late as _late
from oneflow.engine.core.optional import require_packages as _require
from oneflow.version import __version__

_require("fastnn", "libai", "PIL", "omegaconf", "hydra", "yaml")
_NAMESPACES = ("datasets", "flags", "models", "optimizers", "paisoar", "preprocessing", "schedules", "tf", "utils")

__all__ = ["__version__"]  # the namespaces are there too; a star import need not load them

__getattr__ = _late("fastnn", _NAMESPACES, _absent("fastnn", {}, lambda: dict.fromkeys(_NAMESPACES)))


def __dir__() -> list[str]:
    return sorted([*globals(), *_NAMESPACES])
