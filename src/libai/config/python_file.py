"""Config files that are Python: executed in a namespace of their own, with relative imports by the place of the
file."""

from __future__ import annotations

import builtins
import os
import types
from collections.abc import Mapping, Sequence
from typing import Any

from libai.config.errors import ConfigFileError
from libai.config.tree import as_tree
from oneflow.engine.core.errors import nearest


def run_file(filename: str) -> dict[str, Any]:
    """The namespace that a file leaves behind. It is executed anew at every call, so that no change leaks from one
    config into another."""
    path = os.path.abspath(filename)
    if not os.path.isfile(path):
        raise ConfigFileError(f"config file {filename!r} has to exist{_neighbour(path)}")
    with open(path, encoding="utf-8") as file:
        code = compile(file.read(), path, "exec")
    # The file's own builtins have the import that knows files; the one of everybody else is left alone.
    own = {**vars(builtins), "__import__": _import}
    namespace: dict[str, Any] = {
        "__file__": path,
        "__name__": f"_config_{os.path.basename(path)[:-3]}",
        "__package__": None,
        "__builtins__": own,
    }
    exec(code, namespace)
    return {name: value for name, value in namespace.items() if name != "__builtins__"}


def _import(
    name: str,
    globals: Mapping[str, Any] | None = None,
    locals: Mapping[str, Any] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> Any:
    if level == 0 or globals is None:
        return builtins.__import__(name, globals, locals, fromlist or (), level)
    folder = os.path.dirname(globals["__file__"])
    for _ in range(level - 1):
        folder = os.path.dirname(folder)
    path = os.path.join(folder, *name.split(".")) if name else folder
    if os.path.isdir(path) and not os.path.isfile(f"{path}.py"):  # files of a folder
        module = types.ModuleType("_configs")
        for each in fromlist or ():
            setattr(module, each, _module(os.path.join(path, f"{each}.py"), globals["__file__"]))
        return module
    return _module(f"{path}.py", globals["__file__"])


def _module(path: str, importer: str) -> types.ModuleType:
    if not os.path.isfile(path):
        raise ConfigFileError(
            f"{importer} imports {path}, which has to exist: relative imports of configs are files{_neighbour(path)}"
        )
    module = types.ModuleType(f"_config_{os.path.basename(path)[:-3]}")
    vars(module).update(
        {key: as_tree(value) if isinstance(value, Mapping) else value for key, value in run_file(path).items()}
    )
    return module


def _neighbour(path: str) -> str:
    folder, file = os.path.split(path)
    found = nearest(file, os.listdir(folder)) if os.path.isdir(folder) else f"; there is no folder {folder!r}"
    return f".{found}" if found.startswith(" ") else found
