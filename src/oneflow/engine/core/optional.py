"""Packages that only a part of oneflow needs, imported when that part is used."""

from __future__ import annotations

import importlib
from typing import Any

from oneflow.engine.core.errors import OneFlowError


class MissingPackageError(OneFlowError, ImportError):
    """An optional package that is not installed."""


def optional_package(name: str, extra: str, needed_for: str) -> Any:
    """The package ``name``; without it an error that says how to install it, as a part of the extra of that name."""
    root = name.partition(".")[0]
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in (name, root):
            raise  # the package is there, something that it needs is not
        raise MissingPackageError(
            f"{needed_for} needs the package {root!r}, which is not installed: pip install 'oneflow-torch[{extra}]'"
        ) from None
