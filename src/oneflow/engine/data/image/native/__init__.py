"""The optional C extension. ``library`` is its module, or None where it was not built.

It decodes only the needed part of a JPEG, and gives the pixels of the Python way within one level.
"""

import importlib
from types import ModuleType


def _extension() -> ModuleType | None:
    try:
        return importlib.import_module(f"{__name__}._jpeg")
    except ImportError:
        return None


library = _extension()

__all__ = ["library"]
