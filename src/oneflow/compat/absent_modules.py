"""Modules of the original that this package has not: importing one is an error that says what to use instead."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from oneflow.engine.core.errors import OneFlowError


class AbsentModuleError(OneFlowError, ModuleNotFoundError, NotImplementedError):
    """A module, or a name of a package, that the original has and this package has not."""


class AbsentModules(MetaPathFinder):
    """Asked last, about modules that nobody found; says of those in ``reasons`` why they are not there.

    ``from flowvision.models import resnest50`` asks for a module of that name too, and so has the same answer.
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
    """Imports of these names of a package end with their reason; a package that is loaded again replaces what it
    said."""
    sys.meta_path[:] = [
        finder for finder in sys.meta_path if not (isinstance(finder, AbsentModules) and finder._package == package)
    ]
    sys.meta_path.append(AbsentModules(package, reasons))
