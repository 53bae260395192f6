"""ARCHITECTURE.md speaks of files that there are, and its worked example shows what the compiler prints."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx

import oneflow as flow
import oneflow.typing as tp
from oneflow.engine.assignment.distribute import Assigned, CompileTarget, declared_feeds, distribute_job
from oneflow.engine.assignment.storage import variable_layouts
from oneflow.engine.ir.graph import Graph
from oneflow.engine.ir.text import graph_text
from oneflow.engine.job.function import default_session
from oneflow.engine.lowering.rank_program import lower_job
from oneflow.engine.passes.pipeline import compile_rank
from oneflow.engine.program.notes import joint_note
from oneflow.engine.step.codegen import generate

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src" / "oneflow"
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
EXAMPLE = re.compile(r"^```python\n(@flow.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN = {
    name: text.splitlines() for name, text in re.findall(r"^```text (\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
}
RANKS = {(0, 0): 0, (0, 1): 1}
CPU = torch.device("cpu")


def traced() -> Graph:
    """The job of the example, on two devices."""
    flow.config.cpu_device_num(len(RANKS))
    (program,) = EXAMPLE.findall(TEXT)
    exec(program, {"flow": flow, "tp": tp})
    default_session().trace()
    (job,) = default_session().jobs.values()
    assert job.graph is not None
    return job.graph


def assigned(graph: Graph) -> Assigned:
    return distribute_job(graph, CompileTarget(RANKS, variable_layouts(graph, RANKS), declared_feeds(graph, CPU), CPU))


def call(node: fx.Node) -> str:
    arguments = [str(arg) for arg in node.args] + [f"{name}={value}" for name, value in node.kwargs.items()]
    return f"{node.name} = {target(node)}({', '.join(arguments)})"


def target(node: fx.Node) -> str:
    return (
        node.target.__name__
        if type(node.target).__name__ in ("function", "builtin_function_or_method")
        else str(node.target)
    )


def signature(node: fx.Node) -> str:
    (chosen,) = joint_note(node).signatures
    return f"{', '.join(map(str, chosen.inputs))} -> {', '.join(map(str, chosen.outputs))}"


def logical(graph: Graph) -> Iterator[str]:
    yield from graph_text(graph, lines=False).splitlines()


def joint(graph: Graph) -> Iterator[str]:
    for node in assigned(graph).graph.nodes:
        if node.op == "call_function":
            yield f"{call(node)} {joint_note(node).part} {signature(node)}"


def lowered(graph: Graph) -> Iterator[str]:
    for node in lower_job(assigned(graph), 0).sections["step"].graph.nodes:
        yield call(node)


def generated(graph: Graph) -> Iterator[str]:
    code = generate(compile_rank(assigned(graph), 0).sections["step"].graph, graph.job)
    for number, line in enumerate(code.source.splitlines(), start=1):
        yield f"{line} # {target(code.node_at[number])}" if number in code.node_at else line


def plain(line: str) -> str:
    """A line without the numbers that tell values and functions apart, and with single spaces."""
    return " ".join(re.sub(r"(?<=[A-Za-z_])\d+", "", line).split())


@pytest.mark.parametrize("printed", [logical, joint, lowered, generated], ids=lambda f: f.__name__)
def test_the_worked_example_is_what_the_compiler_prints(printed: Callable[[Graph], Iterator[str]]) -> None:
    lines = list(printed(traced()))
    remaining: Iterator[Any] = iter([plain(line) for line in lines])
    shown = SHOWN[printed.__name__]
    assert shown
    for line in shown:
        assert plain(line) in remaining, (
            f"ARCHITECTURE.md shows {line.strip()!r}; the code prints, in this order:\n" + "\n".join(lines)
        )


def paths_in(line: str) -> list[str]:
    """Files of Python and folders that a line names."""
    return re.findall(r"(?<![\w/.])(\w[\w/]*(?:\.py|/))(?![\w/])", line)


def not_there(line: str) -> list[str]:
    """Those that do not exist: neither from one of the roots on, nor in a folder that the line names too."""
    folders = [ROOT, ROOT / "tests", SOURCES]
    for path in paths_in(line):
        found = [folder / path for folder in folders if (folder / path).exists()]
        folders += [place if place.is_dir() else place.parent for place in found]
    return [path for path in paths_in(line) if not any((folder / path).exists() for folder in folders)]


def test_every_file_that_is_named_exists() -> None:
    assert sum(len(paths_in(line)) for line in TEXT.splitlines()) > 100
    missing = {line: found for line in TEXT.splitlines() if (found := not_there(line))}
    assert not missing, "ARCHITECTURE.md names what does not exist:\n" + "\n".join(
        f"{found} in {line}" for line, found in missing.items()
    )


def test_a_file_that_does_not_exist_is_found_out() -> None:
    assert not_there("`engine/sharding/` has `boxing.py` and `rules/`, `engine/lowering/lower.py` calls it") == []
    assert not_there("`engine/sharding/` has `lower.py`, `job/runner.py` calls `tests/compile/`") == [
        "lower.py",
        "job/runner.py",
    ]


def test_every_folder_of_the_sources_is_described() -> None:
    packages = [path for root in (SOURCES, SOURCES / "engine") for path in root.iterdir()]
    folders = {str(path.relative_to(SOURCES)) for path in packages if (path / "__init__.py").exists()}
    described = {path.strip("/") for path in paths_in(TEXT)} | {"engine"}
    missing = sorted(folders - described)
    assert not missing, f"ARCHITECTURE.md does not say what these folders hold: {missing}"


def test_every_file_that_a_contributor_is_sent_to_exists() -> None:
    everywhere = {path.name for folder in (SOURCES, ROOT / "tests") for path in folder.rglob("*.py")} | {"setup.py"}
    named = paths_in((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert len(named) > 40
    missing = [path for path in named if not_there(path) and path not in everywhere]
    assert not missing, f"CONTRIBUTING.md names what does not exist: {missing}"
