"""Modules and packages of ``src/oneflow`` stand in layers: no import goes upwards, whatever line it stands on, and so
none goes in a circle."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = "oneflow"
SOURCES = Path(__file__).parents[2] / "src" / ROOT

# From bottom to top: a package, or a module beside them, imports only what stands before it. ROOT itself is
# ``oneflow/__init__.py``.
LAYERS = (
    *("version", "engine", "engine.core", "errors"),  # values
    "compat",  # API years, spellings and unsupported names
    "engine.ops",  # pure functions on tensors
    *("initializer", "regularizers", "typing", "optimizer", "core"),  # what users declare, as plain values
    "engine.ir",  # traces and logical graphs
    *("engine.collective", "engine.sharding"),  # one call on several ranks
    *(
        "engine.program",
        "engine.capture",
        "engine.assignment",
        "engine.lowering",
        "engine.passes",
    ),  # graphs to programs
    *("engine.step", "engine.runtime", "engine.world", "engine.job"),  # programs to results, on one rank or many
    "engine.global_tensor",  # tensors of many ranks, op by op
    *(
        "engine.data",
        "data",
        "engine.checkpoint",
        "checkpoint",
        "train",
        "engine.onnx",
        "onnx",
        "engine.plan",
        "summary",
    ),
    *("optim", "engine.graph"),  # optimizers of tensors, and graphs of modules
    *("scope", "math", "random", "linalg", "losses", "keras", "distribute", "deprecated", "env"),  # public namespaces
    *("comm", "distributed", "boxing"),
    *("nn", "array", "layers", "image", "system"),  # those that build on others
    *("sbp", "engine.eager", "autograd", "amp", "cuda", "utils", "profiler", "backends", "_C", "mock_torch"),  # tensors
    ROOT,
    *("unittest", "util", "framework", "python", "_oneflow_internal", "experimental"),  # published import paths
    *("cli", "doctor", "compatible", "__main__"),  # entry points, and later names of the whole
)
ENTRY_POINTS = {"compatible", "experimental"}  # what may import the root: it gives each of its names another path


@dataclass(frozen=True)
class Import:
    """``module`` imports ``target`` at ``line`` of its file; ``for_types`` only while types are checked."""

    module: str
    target: str
    line: int
    for_types: bool

    def __str__(self) -> str:
        return f"{self.module} imports {self.target} at line {self.line}"


def modules_under(sources: Path) -> dict[str, Path]:
    """Every module by its name; a package has the name of its folder."""
    found = {}
    for path in sorted(sources.rglob("*.py")):
        parts = path.relative_to(sources.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(module: str, text: str, modules: Iterable[str]) -> Iterator[Import]:
    """The modules of ours that one imports, at any level. Importing a module runs the packages around it as well, save
    those that it shares with the importer: these are running already."""
    known = set(modules)
    for statement, for_types in _statements(ast.parse(text), False):
        for target in _targets(statement, known):
            outer = [target.rsplit(".", level)[0] for level in range(1, target.count("."))]
            for found in [target, *(package for package in outer if not f"{module}.".startswith(f"{package}."))]:
                yield Import(module, found, statement.lineno, for_types)


def _statements(tree: ast.AST, for_types: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child, for_types
        elif isinstance(child, ast.If) and ast.unparse(child.test).removeprefix("typing.") == "TYPE_CHECKING":
            yield from _statements(ast.Module(child.body, []), True)
            yield from _statements(ast.Module(child.orelse, []), for_types)
        else:
            yield from _statements(child, for_types)


def _targets(statement: ast.Import | ast.ImportFrom, known: set[str]) -> list[str]:
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names if alias.name in known]
    assert not statement.level, f"line {statement.lineno} imports by dots; write the whole name"
    names = [f"{statement.module}.{alias.name}" for alias in statement.names]
    return list(
        dict.fromkeys(
            name if name in known else statement.module or ""
            for name in names
            if statement.module in known or name in known
        )
    )


@cache
def every_import() -> list[Import]:
    modules = modules_under(SOURCES)
    return [
        found
        for module, path in modules.items()
        for found in imports_of(module, path.read_text(encoding="utf-8"), modules)
    ]


def cycle_in(edges: Mapping[str, Iterable[str]]) -> list[str]:
    """The first circle that is met, from a name back to itself; [] if there is none."""
    finished: set[str] = set()

    def walk(name: str, way: list[str]) -> list[str]:
        if name in way:
            return [*way[way.index(name) :], name]
        if name in finished:
            return []
        for target in edges.get(name, ()):
            if found := walk(target, [*way, name]):
                return found
        finished.add(name)
        return []

    return next((found for name in edges if (found := walk(name, []))), [])


def told(imports: Iterable[Import], name_of: Callable[[str], str] = str) -> str:
    """The circle that imports make between the names of their modules, with the lines to look at; "" if there is
    none."""
    lines: dict[tuple[str, str], Import] = {}
    for found in imports:
        source, target = name_of(found.module), name_of(found.target)
        if source != target:
            lines.setdefault((source, target), found)
    edges: dict[str, list[str]] = {}
    for source, target in lines:
        edges.setdefault(source, []).append(target)
    circle = cycle_in(edges)
    return "\n".join(str(lines[pair]) for pair in zip(circle, circle[1:]))


def layer_of(module: str) -> str:
    """The package below the root, or below ``engine``, that a module belongs to."""
    parts = module.split(".")
    if len(parts) == 1:
        return ROOT
    return ".".join(parts[1:3]) if parts[1] == "engine" and len(parts) > 2 else parts[1]


def short(module: str) -> str:
    return module.removeprefix(f"{ROOT}.")


def upward(imports: Iterable[Import]) -> list[str]:
    """The imports that go to a layer which does not stand below their own."""
    height = {name: number for number, name in enumerate(LAYERS)}
    across = [found for found in imports if layer_of(found.module) != layer_of(found.target)]
    return [str(found) for found in across if height[layer_of(found.target)] >= height[layer_of(found.module)]]


def test_no_module_imports_itself_in_a_circle():
    assert not told(found for found in every_import() if not found.for_types)


def test_no_package_imports_itself_in_a_circle():
    assert not told((found for found in every_import() if not found.for_types), layer_of)


def test_imports_for_type_checkers_make_no_circle_either():
    assert not told(every_import())


def test_every_package_stands_in_a_layer():
    found = {layer_of(module) for module in modules_under(SOURCES)}
    assert found <= set(LAYERS), f"put {sorted(found - set(LAYERS))} into LAYERS, above all that it imports"
    assert len(set(LAYERS)) == len(LAYERS)


def test_packages_import_only_what_stands_below_them():
    wrong = upward(every_import())
    assert not wrong, "\n".join(["these import what stands above them in LAYERS:", *wrong])


def test_no_module_imports_the_root():
    wrong = [
        str(found) for found in every_import() if found.target == ROOT and layer_of(found.module) not in ENTRY_POINTS
    ]
    assert not wrong, "\n".join(["import from the module that defines the name, not from the package's root:", *wrong])


def test_the_version_can_be_read_without_importing_anything():
    assert not [found for found in every_import() if found.module == f"{ROOT}.version"]
    tree = ast.parse((SOURCES / "version.py").read_text(encoding="utf-8"))
    assert [ast.unparse(target) for node in tree.body if isinstance(node, ast.Assign) for target in node.targets] == [
        "__version__"
    ]


MODULES = [
    "oneflow",
    "oneflow.core",
    "oneflow.core.a",
    "oneflow.engine.ir",
    "oneflow.engine.ir.b",
    "oneflow.engine.job",
    "oneflow.engine.job.sub",
    "oneflow.engine.job.sub.c",
]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import oneflow", [("oneflow", 1, False)]),
        ("from oneflow import core", [("oneflow.core", 1, False)]),
        ("from oneflow import no_module", [("oneflow", 1, False)]),
        ("import torch\nfrom oneflow.core.a import x, y", [("oneflow.core.a", 2, False), ("oneflow.core", 2, False)]),
        ("from oneflow.core import a", [("oneflow.core.a", 1, False), ("oneflow.core", 1, False)]),
        (
            "def f():\n    if True:\n        import oneflow.core.a",
            [("oneflow.core.a", 3, False), ("oneflow.core", 3, False)],
        ),
        (
            "if TYPE_CHECKING:\n    from oneflow import core\nelse:\n    import oneflow.engine.ir",
            [("oneflow.core", 2, True), ("oneflow.engine.ir", 4, False)],
        ),
        (
            "from oneflow.engine.job.sub.c import x",
            [
                ("oneflow.engine.job.sub.c", 1, False),
                ("oneflow.engine.job.sub", 1, False),
                ("oneflow.engine.job", 1, False),
            ],
        ),
        (
            "from oneflow.engine.ir.b import x",
            [("oneflow.engine.ir.b", 1, False)],
        ),  # the importer is in the same package
        ("import numpy", []),
    ],
)
def test_imports_are_found_wherever_they_stand(text, found):
    assert [(i.target, i.line, i.for_types) for i in imports_of("oneflow.engine.ir.d", text, MODULES)] == found


def test_a_circle_is_told_with_its_modules_and_lines():
    imports = [Import("oneflow.a.x", "oneflow.b.y", 3, False), Import("oneflow.b.y", "oneflow.b.z", 7, False)]
    assert not told(imports) and not told(imports, layer_of)
    back = Import("oneflow.b.z", "oneflow.a.other", 9, False)  # closes a circle of packages, not of modules
    assert not told([*imports, back])
    assert (
        told([*imports, back], layer_of)
        == "oneflow.a.x imports oneflow.b.y at line 3\noneflow.b.z imports oneflow.a.other at line 9"
    )
    assert (
        told([*imports, Import("oneflow.b.z", "oneflow.a.x", 9, False)]).splitlines()[-1]
        == "oneflow.b.z imports oneflow.a.x at line 9"
    )


def test_an_import_that_goes_upwards_is_named():
    down, up = (
        Import("oneflow.engine.job.x", "oneflow.core.y", 3, False),
        Import("oneflow.core.y", "oneflow.engine.job.x", 4, False),
    )
    assert upward([down, up]) == ["oneflow.core.y imports oneflow.engine.job.x at line 4"]
