"""The optional C extensions with CPU kernels.

Each is a module, or None where it was not built or the processor lacks an instruction set; torch's ops are used then.
``library`` has fused batch norm, ``winograd`` 3 x 3 convolutions of training, ``conv`` convolutions and products of
prediction, ``update`` optimizer updates in one pass over memory.
"""

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
update = _extension("_update")

__all__ = ["conv", "library", "update", "winograd"]
