"""The optional C extension with kernels of steps. ``library`` is its module, or None where it was not built; then torch's own ops do the work."""

import importlib
from types import ModuleType


def _extension() -> ModuleType | None:
    try:
        return importlib.import_module(f"{__name__}._fused")
    except ImportError:
        return None


library = _extension()

__all__ = ["library"]
