"""``import oneflow.compatible.single_client as flow``: the same API under its later name.

Every public name and namespace is that of ``oneflow`` itself, so that programs may mix both imports.
"""

import sys
from importlib import import_module

import oneflow
from oneflow.compat.refused import REFUSED_NAMESPACES

for _name in oneflow.__all__:
    _value = getattr(oneflow, _name)
    globals()[_name] = _value
    if getattr(_value, "__name__", "") == f"oneflow.{_name}":
        sys.modules[f"{__name__}.{_name}"] = _value

# Modules that the root loads late, or has beside its names.
for _name in ("core", "experimental", "framework", "python", "unittest", "util", *REFUSED_NAMESPACES):
    globals()[_name] = sys.modules[f"{__name__}.{_name}"] = import_module(f"oneflow.{_name}")

__all__ = [*oneflow.__all__, "experimental", "unittest", "util"]
