"""Modules of a package that load where they are first used."""

from __future__ import annotations

from collections.abc import Callable, Collection
from importlib import import_module
from typing import Any


def late(package: str, modules: Collection[str], otherwise: Callable[[str], Any]) -> Callable[[str], Any]:
    """A package's ``__getattr__``: asking for one of ``modules`` loads it, from then on it is an attribute; other names
    are ``otherwise``'s."""

    def find(name: str) -> Any:
        return import_module(f"{package}.{name}") if name in modules else otherwise(name)

    return find
