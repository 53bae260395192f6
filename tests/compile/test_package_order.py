"""The packages of ``src`` stand in one line: each imports only itself and what stands to its left; inside each, no
import goes in a circle."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_imports import imports_of, modules_under, told

SOURCES = Path(__file__).parents[2] / "src"
ORDER = ("oneflow", "oneflow_api", "flowvision", "libai", "fastnn")


def packages_imported(text: str) -> Iterator[tuple[str, int]]:
    """The first part of every name that a module imports, on any line."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((alias.name.split(".")[0], node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").split(".")[0], node.lineno


def to_the_right(package: str, text: str) -> list[tuple[str, int]]:
    later = ORDER[ORDER.index(package) + 1 :]
    return [(name, line) for name, line in packages_imported(text) if name in later]


def test_every_package_stands_in_the_order():
    found = {folder.name for folder in SOURCES.iterdir() if (folder / "__init__.py").exists()}
    assert found <= set(ORDER)
    assert {"oneflow", "flowvision", "libai", "fastnn"} <= found


@pytest.mark.parametrize("package", ORDER)
def test_a_package_imports_only_what_stands_to_its_left(package):
    wrong = [
        f"{path}:{line} imports {name}"
        for path in sorted((SOURCES / package).rglob("*.py"))
        for name, line in to_the_right(package, path.read_text("utf-8"))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", ORDER[1:])
def test_modules_import_each_other_in_no_circle(package):
    # Config files import each other by their places (relative imports), and are no modules.
    modules = {
        name: path for name, path in modules_under(SOURCES / package).items() if not name.startswith("libai.configs.")
    }
    assert not told(
        found
        for module, path in modules.items()
        for found in imports_of(module, path.read_text("utf-8"), modules)
        if not found.for_types
    )


def test_an_import_to_the_right_is_seen_on_any_line():
    text = "import oneflow\ndef f():\n    from libai.data import Instance\n"
    assert to_the_right("flowvision", text) == [("libai", 3)]
    assert to_the_right("fastnn", text) == []


@pytest.mark.parametrize("package", ["flowvision", "libai", "fastnn"])
def test_a_namespace_is_an_attribute_of_its_package(package):
    """Programs write ``import flowvision`` and then ``flowvision.models.resnet50()``."""
    module = importlib.import_module(package)
    folders = sorted(init.parent.name for init in (SOURCES / package).glob("*/__init__.py"))
    assert {f"{package}.{name}" for name in folders} == {getattr(module, name).__name__ for name in folders}
    assert set(folders) <= set(dir(module))
    with pytest.raises(AttributeError, match="no attribute 'utlis'. Did you mean 'utils'"):
        module.utlis  # noqa: B018
