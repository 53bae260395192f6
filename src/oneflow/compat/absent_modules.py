"""Errors for imports of modules that the original has and this package does not: they name a replacement."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from oneflow.engine.core.errors import OneFlowError
from oneflow.engine.core.switches import IMPORT_HINTS, is_on


class AbsentModuleError(OneFlowError, ModuleNotFoundError, NotImplementedError):
    """A module or name of the original that this package does not have."""


class AbsentModules(MetaPathFinder):
    """A finder at the end of ``sys.meta_path`` that raises for the names in ``reasons``.

    ``from flowvision.models import resnest50`` looks for a module of that name too, so it gets the same error.
    """

    def __init__(self, package: str, reasons: Mapping[str, str]) -> None:
        self._package, self._reasons = package, reasons

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.rpartition(".")
        if package == self._package and name in self._reasons:
            raise AbsentModuleError(f"{fullname} is not there: {self._reasons[name]}")
        return None


def refuse(package: str, reasons: Mapping[str, str]) -> None:
    """Makes imports of these names of a package raise an error with their reason; a later call replaces it."""
    if not is_on(IMPORT_HINTS):
        return
    sys.meta_path[:] = [
        finder for finder in sys.meta_path if not (isinstance(finder, AbsentModules) and finder._package == package)
    ]
    sys.meta_path.append(AbsentModules(package, reasons))
