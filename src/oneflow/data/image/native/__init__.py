"""The optional C extension. ``library`` is its module, or None where it was not built."""

from types import ModuleType

library: ModuleType | None
try:
    from oneflow.data.image.native import _jpeg as library  # type: ignore[attr-defined,no-redef]
except ImportError:
    library = None

__all__ = ["library"]
