"""Arguments out of a config."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def given(cfg: Any, names: Iterable[str]) -> dict[str, Any]:
    """Of these keys those that a config has, as arguments; for the others the defaults of who takes them hold."""
    return {name: cfg[name] for name in names if name in cfg}
