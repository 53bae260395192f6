"""Packages that only a part of oneflow needs. Without one of them, using that part raises an error that names the extra
to install."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType
from typing import Any

from oneflow.engine.core.errors import OneFlowError


class MissingPackageError(OneFlowError, ImportError):
    """An optional package that is not installed."""


def optional_package(name: str, extra: str, needed_for: str) -> Any:
    """Imports an optional package at its first use.

    Args:
        name: Module to import, such as ``"PIL.Image"``.
        extra: Extra of ``oneflow-torch`` that installs it.
        needed_for: Feature that needs it, for the error.

    Raises:
        MissingPackageError: The package is not installed.
    """
    root = name.partition(".")[0]
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in (name, root):
            raise  # the package is there, something that it needs is not
        raise _missing([root], extra, needed_for) from None


def package_or_stub(name: str, extra: str, needed_for: str) -> Any:
    """Imports an optional package now; where it is missing, returns a stub whose attributes raise the error of
    ``optional_package``. For modules that must be importable without the package."""
    try:
        return optional_package(name, extra, needed_for)
    except MissingPackageError as error:
        return _Stub(name, error.reason)


def require_packages(needed_for: str, extra: str, *names: str) -> None:
    """Raises ``MissingPackageError`` unless all packages are installed. Imports none of them."""
    missing = [name for name in names if not _is_installed(name)]
    if missing:
        raise _missing(missing, extra, needed_for)


class _Stub(ModuleType):
    """Stands in for a package that is not installed."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name)
        self.__reason = reason

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what inspection looks for is simply absent
            raise AttributeError(name)
        raise MissingPackageError(self.__reason)


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _missing(names: list[str], extra: str, needed_for: str) -> MissingPackageError:
    packages = (
        f"package {names[0]!r}, which is" if len(names) == 1 else f"packages {', '.join(map(repr, names))}, which are"
    )
    return MissingPackageError(f"{needed_for} needs the {packages} not installed: pip install 'oneflow-torch[{extra}]'")
