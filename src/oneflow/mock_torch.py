"""``flow.mock_torch``: within it, ``import torch`` of a program gives oneflow.

Import statements are redirected, ``sys.modules`` stays as it is: torch itself and this package, which stands on torch,
keep the real one, and so does a module that was imported before.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

__all__ = ["disable", "enable"]

_KEEP = {"torch", "functorch", "torchgen", "oneflow"}  # packages that mean the real torch
_REAL = builtins.__import__


def _redirected(
    name: str,
    globals: Mapping[str, Any] | None = None,
    locals: Mapping[str, Any] | None = None,
    fromlist: Any = (),
    level: int = 0,
) -> ModuleType:
    asker = str((globals or {}).get("__name__", "")).split(".")[0]
    if level == 0 and name.split(".")[0] == "torch" and asker not in _KEEP:
        name = "oneflow" + name.removeprefix("torch")
    return _REAL(name, globals, locals, fromlist, level)


class _Switch:
    """Sets how imports go: at once, and back at the end of a ``with`` block; around each call of a decorated
    function."""

    importer: Callable[..., ModuleType]

    def __init__(self) -> None:
        self._before = builtins.__import__
        builtins.__import__ = type(self).importer

    def __enter__(self) -> _Switch:
        return self

    def __exit__(self, *_: object) -> None:
        builtins.__import__ = self._before

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        builtins.__import__ = self._before

        @functools.wraps(function)
        def switched(*args: Any, **kwargs: Any) -> Any:
            with type(self)():
                return function(*args, **kwargs)

        return switched


class enable(_Switch):
    """From here on ``import torch`` gives oneflow: until ``disable()``, or within a ``with`` block or a decorated
    function."""

    importer = staticmethod(_redirected)


class disable(_Switch):
    """From here on ``import torch`` gives torch again."""

    importer = staticmethod(_REAL)
