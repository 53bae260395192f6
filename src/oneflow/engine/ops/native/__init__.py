"""The optional C extensions with kernels of steps: modules, or None where they were not built or the processor lacks
what they need; then torch's own ops do the work. ``library`` has fused batch norm, ``winograd`` convolutions of 3 x 3
filters, ``conv`` convolutions and products of prediction, ``heap`` the memory of large tensors, ``watch`` looks whether
tensors have changed, ``update`` updates variables in one pass over memory."""

import importlib
from types import ModuleType


def _extension(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(f"{__name__}.{name}")
    except ImportError:
        return None


library = _extension("_fused")
winograd = _extension("_winograd")
conv = _extension("_conv")
heap = _extension("_heap")
update = _extension("_update")
watch = _extension("_watch")

__all__ = ["conv", "heap", "library", "update", "watch", "winograd"]
