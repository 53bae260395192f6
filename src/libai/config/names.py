"""Objects by their dotted names, and names of objects."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from libai.config.errors import InstantiationError
from oneflow.engine.core.errors import nearest


def locate(name: str) -> Any:
    """The object that ``package.module.Name`` names. Importing its modules runs them; nothing is called."""
    parts = name.split(".") if isinstance(name, str) else []
    if not parts or not all(part.isidentifier() for part in parts):
        raise InstantiationError(
            f"Error locating target {name!r}: expected a dotted name such as 'package.module.Class'"
        )
    module, rest = _longest_module(parts)
    found = module
    for depth, part in enumerate(rest):
        if not hasattr(found, part):
            inside = ".".join(parts[: len(parts) - len(rest) + depth])
            raise InstantiationError(
                f"Error locating target {name!r}: {inside!r} has no {part!r}.{nearest(part, dir(found))}"
            )
        found = getattr(found, part)
    return found


def _longest_module(parts: list[str]) -> tuple[Any, list[str]]:
    for length in range(len(parts), 0, -1):
        module = ".".join(parts[:length])
        try:
            return importlib.import_module(module), parts[length:]
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):  # one of its own imports is missing
                raise InstantiationError(
                    f"Error locating target {'.'.join(parts)!r}: importing {module!r} failed: {error}"
                ) from error
    raise InstantiationError(
        f"Error locating target {'.'.join(parts)!r}: there is no module {parts[0]!r}. Start from the project's folder, "
        f"or put it into PYTHONPATH"
    )


def name_of(target: Any) -> str | None:
    """The shortest dotted name under which a class or function can be located again; None if there is none."""
    module, qualified = getattr(target, "__module__", None), getattr(target, "__qualname__", None)
    if isinstance(module, str) and isinstance(qualified, str):
        parts = module.split(".")
        for length in range(1, len(parts) + 1):
            prefix = ".".join(parts[:length])
            if _is_at(prefix, qualified, target):
                return f"{prefix}.{qualified}"
    return None


def _is_at(module: str, qualified: str, target: Any) -> bool:
    found: Any = sys.modules.get(module)
    for part in qualified.split("."):
        found = getattr(found, part, None) if found is not None else None
    return found is target


def told(target: Any) -> str:
    """A target as messages name it."""
    return (
        target if isinstance(target, str) else name_of(target) or getattr(target, "__qualname__", None) or repr(target)
    )
