"""Writes docs/reference.md: every public name with its signature and the first sentence of its docstring.

python docs/make_reference.py            writes the file
python docs/make_reference.py --check    exits with 1 if the file is not up to date
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import oneflow

TARGET = Path(__file__).parent / "reference.md"
# Public namespaces that are imported by their full names and so are not offered by the one above them.
BY_FULL_NAME = {"flow.data": ["image", "mnist"]}
HEAD = """# Reference

Every public name. `import oneflow as flow`; the same names are under `oneflow.compatible.single_client`.
This page is made by `docs/make_reference.py` from the code.
"""


def namespaces() -> list[tuple[str, ModuleType]]:
    """``flow`` and every public namespace below it, by the name users type."""
    found: list[tuple[str, ModuleType]] = []

    def visit(name: str, module: ModuleType) -> None:
        found.append((name, module))
        by_full_name = BY_FULL_NAME.get(name, [])
        for child in sorted([*public(module), *by_full_name]):
            value = import_module(f"{module.__name__}.{child}") if child in by_full_name else getattr(module, child)
            if isinstance(value, ModuleType) and value.__name__.startswith("oneflow."):  # some are torch's own
                visit(f"{name}.{child}", value)

    visit("flow", oneflow)
    return found


def public(module: ModuleType) -> list[str]:
    """The names a namespace offers; one without ``__all__`` offers its submodules only."""
    names = getattr(module, "__all__", None)
    if names is None:
        names = [
            n
            for n, v in vars(module).items()
            if isinstance(v, ModuleType) and v.__name__.startswith(module.__name__ + ".")
        ]
    return [name for name in names if not name.startswith("_")]


def entries(module: ModuleType) -> list[tuple[str, Any]]:
    """The public names of a namespace that are not namespaces themselves."""
    return [
        (name, getattr(module, name)) for name in public(module) if not isinstance(getattr(module, name), ModuleType)
    ]


def _is_wrapped(found: Any, value: Any) -> bool:
    """Whether both are one function: torch's compiler, once it is loaded, wraps functions such as manual_seed."""
    return callable(found) and callable(value) and inspect.unwrap(found) is inspect.unwrap(value)


def torchs(name: str, value: Any) -> str:
    """Where torch has a value that stands here under ``name``; "" if it has not."""
    found: Any = torch
    for part in name.split(".")[1:]:
        found = getattr(found, part, None)
    if found is value or _is_wrapped(found, value):
        return f"torch{name.removeprefix('flow')}"
    module = getattr(value, "__module__", None) or ""
    return (
        f"{module}.{value.__qualname__}" if module.split(".")[0] == "torch" and hasattr(value, "__qualname__") else ""
    )


def summary(value: Any, name: str = "") -> str:
    """The first sentence of a value's own docstring; of a plain value its class's. A name of torch's is shown as that."""
    if isinstance(value, torch.dtype):
        return f"The element type {str(value).removeprefix('torch.')}, torch's own."
    if name and (there := torchs(name, value)):
        return f"`{there}`."
    paragraph = " ".join((inspect.getdoc(value) or "").split("\n\n", 1)[0].split())
    return re.split(r"(?<=[.])\s+(?=[A-Z`])", paragraph, maxsplit=1)[0]


def signature(value: Any) -> str:
    """The parameters of a function or class, with defaults; annotations would drown them."""
    if not callable(value):
        return ""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in found.parameters.values()]
    text = str(found.replace(parameters=bare, return_annotation=inspect.Signature.empty))
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def reference() -> str:
    """The whole page."""
    parts = [HEAD]
    for name, module in namespaces():
        rows = [_row(f"{name}.{key}", key, value) for key, value in sorted(entries(module), key=_by_name)]
        if rows:
            parts.append(
                "\n".join([f"## {name}", "", f"{summary(module)}", "", "| name | what it is |", "|---|---|", *rows, ""])
            )
    return "\n".join(parts)


def _row(name: str, key: str, value: Any) -> str:
    parameters = "" if torchs(name, value) else signature(value)
    return f"| `{key}{parameters}` | {_cell(summary(value, name))} |"


def _by_name(entry: tuple[str, Any]) -> tuple[str, str]:
    return entry[0].lower(), entry[0]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    text = reference()
    if not parser.parse_args().check:
        TARGET.write_text(text, encoding="utf-8")
        return 0
    if TARGET.exists() and TARGET.read_text(encoding="utf-8") == text:
        return 0
    print(f"{TARGET.name} is not up to date; run python docs/{Path(__file__).name}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
