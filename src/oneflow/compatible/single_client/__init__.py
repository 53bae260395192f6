"""``import oneflow.compatible.single_client as flow``: the same API under its later name.

Every public name and namespace is that of ``oneflow`` itself, so that programs may mix both imports.
"""

import sys

import oneflow

for _name in oneflow.__all__:
    _value = getattr(oneflow, _name)
    globals()[_name] = _value
    if getattr(_value, "__name__", "") == f"oneflow.{_name}":
        sys.modules[f"{__name__}.{_name}"] = _value

__all__ = list(oneflow.__all__)
