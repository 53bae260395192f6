"""LiBai on this package's oneflow: lazy configs, data, a trainer, hooks, evaluators and checkpoints around a model of
one's own.

The namespaces below are loaded when they are first asked for, as is everything in them that needs torch's compiler.
"""

from __future__ import annotations

from oneflow.compat.absent import absent as _absent
from oneflow.engine.core.late import late as _late
from oneflow.engine.core.optional import require_packages as _require
from oneflow.version import __version__

_require("libai", "libai", "omegaconf", "hydra", "yaml")
_NAMESPACES = (
    "board",
    "config",
    "data",
    "engine",
    "evaluation",
    "inference",
    "layers",
    "models",
    "onnx_export",
    "optim",
    "plan",
    "scheduler",
    "tokenizer",
    "utils",
)

__all__ = ["__version__"]  # the namespaces are there too; a star import need not load them

__getattr__ = _late("libai", _NAMESPACES, _absent("libai", {}, lambda: dict.fromkeys(_NAMESPACES)))


def __dir__() -> list[str]:
    return sorted([*globals(), *_NAMESPACES])
